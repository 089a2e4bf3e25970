// row_wise: divides rows into equal blocks over all ranks. Every owner sums its rows, and the home adds the sums.
#include "common/cuts.h"

namespace {

using namespace tessera::sdk;

class RowWise : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology& topology,
                              const Constraints& constraints) const override {
    if (tessera::strategies::too_many(topology.world_size, constraints)) return {};
    LayoutPart part{TSR_PLACE_EVERY_RANK, TSR_COMBINE_SUM, TSR_ROWS_RANGE, {}};
    tessera::strategies::cut_rows(table, topology.world_size, 0, table.cols, part.rectangles);
    return {Layout{{part}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-row-wise", "1.0.0",
               component<RowWise>({.id = "row_wise", .version = "1.0.0", .about = "rows in blocks over all ranks"}));
