// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.stripe: rows are dealt out like cards, row r to rank r mod N. Balanced even where hot rows lie together.
#include <tessera/sdk/sharder.h>

using namespace tessera::sdk;

class Stripe : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology& topology, const Constraints& limits) const override {
    const int64_t n = topology.world_size;
    if (limits.max_shards > 0 && n > limits.max_shards) return {};  // cannot be cut this way
    LayoutPart part{.placement = TSR_PLACE_EVERY_RANK, .combine = TSR_COMBINE_SUM, .row_set = TSR_ROWS_ROUTED};
    for (int64_t rank = 0; rank < n; ++rank) {
      part.rectangles.push_back({.row = 0, .rows = (table.rows - rank + n - 1) / n, .col = 0, .cols = table.cols});
    }
    return {Layout{{part}}};
  }

  void route(const Routed& layout, std::span<const int64_t> ids, std::span<int32_t> row_sets,
             std::span<int64_t> rows) const override {
    const int64_t n = layout.num_row_sets;
    for (size_t i = 0; i < ids.size(); ++i) {
      row_sets[i] = static_cast<int32_t>(ids[i] % n);
      rows[i] = ids[i] / n;
    }
  }

  void unroute(const Routed& layout, std::span<const int32_t> row_sets, std::span<const int64_t> rows,
               std::span<int64_t> ids) const override {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = rows[i] * layout.num_row_sets + row_sets[i];
  }
};

TESSERA_PLUGIN("acme-stripe", "1.0.0",
               component<Stripe>({.id = "acme.stripe", .version = "1.0.0", .about = "row r on rank r mod N"}));
