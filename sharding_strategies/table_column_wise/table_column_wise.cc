// table_column_wise: divides columns into shards of equal width, all on ranks of one host.
#include "common/cuts.h"

namespace {

using namespace tessera::sdk;

class TableColumnWise : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology&, const Constraints& constraints) const override {
    return {Layout{{{TSR_PLACE_IN_HOST, TSR_COMBINE_CONCAT, TSR_ROWS_RANGE,
                     tessera::strategies::cut_columns(table, constraints)}}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-table-column-wise", "1.0.0",
               component<TableColumnWise>(
                   {.id = "table_column_wise", .version = "1.0.0", .about = "columns over the ranks of one host"}));
