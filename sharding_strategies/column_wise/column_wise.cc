// column_wise: divides columns into shards of equal width, each on any rank.
#include "common/cuts.h"

namespace {

using namespace tessera::sdk;

class ColumnWise : public Sharder {
 public:
  std::vector<Layout> propose(const Table& table, const Topology&, const Constraints& constraints) const override {
    return {Layout{{{TSR_PLACE_ANY_RANK, TSR_COMBINE_CONCAT, TSR_ROWS_RANGE,
                     tessera::strategies::cut_columns(table, constraints)}}}};
  }
};

}  // namespace

TESSERA_PLUGIN("tessera-column-wise", "1.0.0",
               component<ColumnWise>({.id = "column_wise", .version = "1.0.0", .about = "columns over any ranks"}));
