#include "planner/torchrec/cost_model.h"

#include "planner/torchrec/formulas.h"

namespace tessera::torchrec {

namespace {

class FormulaModel : public CostModel {
 public:
  explicit FormulaModel(const Topology& topology) : topology_(topology) {}
  Storage storage(const PricedShard& s) const override {
    return shard_storage(s.layout, s.kernel, s.work, topology_, s.rows, s.cols);
  }
  Perf perf(const PricedShard& s) const override { return shard_perf(s.layout, s.kernel, s.work, topology_, s.cols); }

 private:
  const Topology& topology_;
};

}  // namespace

std::unique_ptr<CostModel> make_cost_model(const Topology& topology) {
  return std::make_unique<FormulaModel>(topology);
}

}  // namespace tessera::torchrec
