// The cost model "torchrec": TorchRec's formulas with the topology's bandwidths.
#pragma once

#include <memory>
#include <vector>

#include "planner/cost_model.h"

namespace tessera::torchrec {

// The model knows only TorchRec's compute kernels. All references must outlive it. Throws PlannerError(kBadInput) if
// the topology lacks a bandwidth.
std::unique_ptr<CostModel> make_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                           const std::vector<PricedTable>& tables);

}  // namespace tessera::torchrec
