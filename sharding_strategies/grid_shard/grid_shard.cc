// grid_shard: divides columns into shards, each on one host, and a shard's rows into blocks over that host's ranks.
#include "common/cuts.h"

namespace {

using namespace tessera::sdk;

class GridShard : public Sharder {
 public:
  static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED;

  std::vector<Layout> propose(const Table& table, const Topology& topology,
                              const Constraints& constraints) const override {
    const int64_t local = topology.local_world_size;
    if (tessera::strategies::too_many(local, constraints)) return {};
    const Constraints of_columns{constraints.min_partition, constraints.max_shards / local};
    LayoutPart part{TSR_PLACE_HOSTS, TSR_COMBINE_HOST_SUM, TSR_ROWS_RANGE, {}};
    for (const Rectangle& block : tessera::strategies::cut_columns(table, of_columns)) {
      tessera::strategies::cut_rows(table, local, block.col, block.cols, part.rectangles);
    }
    return {Layout{{part}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-grid-shard", "1.0.0",
               component<GridShard>({.id = "grid_shard",
                                     .version = "1.0.0",
                                     .about = "columns over hosts, rows over the ranks of each"}));
