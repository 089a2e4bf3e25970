// The cost model "default": the kernel plugins' estimates from a machine's figures.
#pragma once

#include <memory>
#include <vector>

#include "planner/cost_model.h"

namespace tessera {

// All references must outlive the model. Errors are those of figures_for().
std::unique_ptr<CostModel> make_default_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                                   const std::vector<PricedTable>& tables);

}  // namespace tessera
