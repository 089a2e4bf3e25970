// table_row_wise: divides rows into blocks over the ranks of one host. Their sums are added inside the host, before
// they go to other hosts.
#include "common/cuts.h"

namespace {

using namespace tessera::sdk;

class TableRowWise : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology& topology,
                              const Constraints& constraints) const override {
    if (tessera::strategies::too_many(topology.local_world_size, constraints)) return {};
    LayoutPart part{TSR_PLACE_ONE_HOST, TSR_COMBINE_HOST_SUM, TSR_ROWS_RANGE, {}};
    tessera::strategies::cut_rows(table, topology.local_world_size, 0, table.cols, part.rectangles);
    return {Layout{{part}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-table-row-wise", "1.0.0",
               component<TableRowWise>(
                   {.id = "table_row_wise", .version = "1.0.0", .about = "rows in blocks over the ranks of one host"}));
