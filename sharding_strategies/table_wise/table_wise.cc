// table_wise: puts the whole table on one rank.
#include "tessera/sdk/sharder.h"

namespace {

using namespace tessera::sdk;

class TableWise : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology&, const Constraints&) const override {
    return {Layout{{{TSR_PLACE_ANY_RANK, TSR_COMBINE_CONCAT, TSR_ROWS_RANGE, {{0, table.rows, 0, table.cols}}}}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-table-wise", "1.0.0",
               component<TableWise>({.id = "table_wise", .version = "1.0.0", .about = "a whole table on one rank"}));
