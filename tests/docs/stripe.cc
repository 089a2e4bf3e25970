// acme.stripe: row i lives on shard i mod n. Neighbouring ids, often the popular ones, spread over all ranks.
#include "tessera/sdk/sharder.h"

namespace {

using namespace tessera::sdk;

class Stripe : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology& topology, const Constraints& limits) const override {
    const int64_t n = topology.world_size;
    if (limits.max_shards > 0 && n > limits.max_shards) return {};  // cannot cut it this way
    LayoutPart part{TSR_PLACE_EVERY_RANK, TSR_COMBINE_SUM, TSR_ROWS_ROUTED, {}};
    for (int64_t i = 0; i < n; ++i) part.rectangles.push_back({0, (table.rows + n - 1 - i) / n, 0, table.cols});
    return {{part}};
  }
  void route(const Table&, uint32_t n, std::span<const int64_t> ids, std::span<int32_t> shards,
             std::span<int64_t> local_rows) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      shards[i] = static_cast<int32_t>(ids[i] % n);
      local_rows[i] = ids[i] / n;
    }
  }
  void unroute(const Table&, uint32_t n, uint32_t shard, std::span<const int64_t> local_rows,
               std::span<int64_t> ids) const override {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = local_rows[i] * n + shard;
  }
};

}  // namespace

TESSERA_PLUGIN("acme-stripe", "1.0.0",
               component<Stripe>({.id = "acme.stripe", .version = "1.0.0", .about = "row i on shard i mod n"}));
