// data_parallel: every rank has the whole table. Lookups are local, and gradients are averaged.
#include "tessera/sdk/sharder.h"

namespace {

using namespace tessera::sdk;

class DataParallel : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology& topology,
                              const Constraints& constraints) const override {
    if (constraints.max_shards > 0 && topology.world_size > constraints.max_shards) return {};
    const std::vector<Rectangle> copies(topology.world_size, Rectangle{0, table.rows, 0, table.cols});
    return {Layout{{{TSR_PLACE_EVERY_RANK, TSR_COMBINE_REPLICA, TSR_ROWS_RANGE, copies}}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-data-parallel", "1.0.0",
               component<DataParallel>({.id = "data_parallel", .version = "1.0.0", .about = "a copy on every rank"}));
