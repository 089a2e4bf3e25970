#include "planner/cost_model.h"

#include "planner/default_cost_model.h"
#include "planner/torchrec/cost_model.h"

namespace tessera {

namespace {

using CostModelMaker = std::unique_ptr<CostModel> (*)(const PlannerOptions&, ComputeKernels&,
                                                      const std::vector<PricedTable>&);
struct NamedCostModel {
  const char* name;
  CostModelMaker make;
};
constexpr NamedCostModel kCostModels[] = {
    {"default", make_default_cost_model},
    {"torchrec", torchrec::make_cost_model},
};

}  // namespace

std::unique_ptr<CostModel> make_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                           const std::vector<PricedTable>& tables) {
  std::string known;
  for (const NamedCostModel& model : kCostModels) {
    if (options.cost_model == model.name) return model.make(options, kernels, tables);
    known += str_cat(known.empty() ? "" : " and ", "\"", model.name, "\"");
  }
  fail(Code::kInvalidArgument, "there is no cost model \"", options.cost_model, "\"; known are ", known);
}

}  // namespace tessera
