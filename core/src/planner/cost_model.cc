#include "planner/cost_model.h"

#include "planner/default_cost_model.h"
#include "planner/torchrec/cost_model.h"

namespace tessera {

namespace {

using CostModelMaker = std::unique_ptr<CostModel> (*)(const Runtime&, const PlannerOptions&,
                                                      const std::vector<TableAndConstraints>&);
struct NamedCostModel {
  const char* name;
  CostModelMaker make;
};
constexpr NamedCostModel kCostModels[] = {
    {"default",
     [](const Runtime& runtime, const PlannerOptions& options, const std::vector<TableAndConstraints>& tables)
         -> std::unique_ptr<CostModel> { return make_default_cost_model(runtime, options, tables); }},
    {"torchrec",
     [](const Runtime&, const PlannerOptions& options, const std::vector<TableAndConstraints>&)
         -> std::unique_ptr<CostModel> { return torchrec::make_cost_model(options.topology); }},
};

}  // namespace

std::unique_ptr<CostModel> make_cost_model(const Runtime& runtime, const PlannerOptions& options,
                                           const std::vector<TableAndConstraints>& tables) {
  std::string known;
  for (const NamedCostModel& model : kCostModels) {
    if (options.cost_model == model.name) return model.make(runtime, options, tables);
    known += cat(known.empty() ? "" : " and ", "\"", model.name, "\"");
  }
  fail(Code::kInvalidArgument, "there is no cost model \"", options.cost_model, "\"; known are ", known);
}

}  // namespace tessera
