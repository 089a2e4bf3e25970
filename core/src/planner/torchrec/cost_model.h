// The cost model "torchrec": TorchRec's formulas over the topology's bandwidths.
#pragma once

#include <memory>
#include <vector>

#include "planner/cost_model.h"

namespace tessera::torchrec {

// It knows TorchRec's compute kernels and no others. All references outlive the model. PlannerError(kBadInput) where
// the topology lacks a bandwidth.
std::unique_ptr<CostModel> make_cost_model(const PlannerOptions& options, ComputeKernels& kernels,
                                           const std::vector<PricedTable>& tables);

}  // namespace tessera::torchrec
