// hash: a sharder for tables whose rows are created on demand. Ranks own whole buckets (buckets.h). The surviving ids
// of a bucket and the values of their rows are therefore the same on any number of ranks.
#pragma once

#include <tessera/sdk/sharder.h>

#include "buckets.h"

namespace extras {

class Hash : public tessera::sdk::Sharder {
 public:
  using Table = tessera::sdk::Table;
  using Topology = tessera::sdk::Topology;

  // It must be asked for, because kernels that hold all rows cannot be divided this way.
  static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED | TSR_SHARDER_KEEPS_IDS;

  // Divides whole rows by equal ranges of the hashes. More ranks than cells are refused: some would have no rows.
  std::vector<tessera::sdk::Layout> propose(const Table& table, const Topology& topology,
                                            const tessera::sdk::Constraints& limits) const override {
    const int64_t ranks = topology.world_size, cells = Cells::count(table.rows);
    if (ranks > cells || (limits.max_shards > 0 && ranks > limits.max_shards)) return {};
    tessera::sdk::LayoutPart part{TSR_PLACE_EVERY_RANK, TSR_COMBINE_SUM, TSR_ROWS_ROUTED, {}};
    int64_t first = 0;
    for (int64_t rank = 0, cell = 0; rank < ranks; ++rank) {
      while (cell < cells && owner(cell, cells, ranks) == rank) ++cell;
      const int64_t end = static_cast<int64_t>(static_cast<Wide>(table.rows) * cell / cells);
      part.rectangles.push_back({0, end - first, 0, table.cols});
      first = end;
    }
    return {tessera::sdk::Layout{{part}}};
  }

  void route(const tessera::sdk::Routed& layout, std::span<const int64_t> ids, std::span<int32_t> row_sets,
             std::span<int64_t> rows) const override {
    const int64_t cells = Cells::count(layout.table.rows);
    int32_t owners[Cells::kMost];
    for (int64_t c = 0; c < cells; ++c) owners[c] = static_cast<int32_t>(owner(c, cells, layout.num_row_sets));
    for (size_t i = 0; i < ids.size(); ++i) {
      row_sets[i] = owners[Cells::of(scrambled(ids[i]), cells)];
      rows[i] = ids[i];
    }
  }
  void unroute(const tessera::sdk::Routed&, std::span<const int32_t>, std::span<const int64_t> rows,
               std::span<int64_t> ids) const override {
    std::copy(rows.begin(), rows.end(), ids.begin());
  }

 private:
  __extension__ using Wide = __int128;
  static int64_t owner(int64_t cell, int64_t cells, int64_t ranks) { return cell * ranks / cells; }
};

}  // namespace extras
