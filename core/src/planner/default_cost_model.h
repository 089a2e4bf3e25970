// The cost model "default": the kernel plugins' estimates over a machine's figures.
#pragma once

#include <memory>
#include <vector>

#include "planner/cost_model.h"

namespace tessera {

// All references outlive the model. Machine::check_fits' errors.
std::unique_ptr<CostModel> make_default_cost_model(const Runtime& runtime, const PlannerOptions& options,
                                                   const std::vector<TableAndConstraints>& tables);

}  // namespace tessera
