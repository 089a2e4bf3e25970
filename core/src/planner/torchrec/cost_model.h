// The cost model "torchrec": TorchRec's formulas over the topology's bandwidths.
#pragma once

#include <memory>

#include "planner/cost_model.h"

namespace tessera::torchrec {

// `topology` outlives the model.
std::unique_ptr<CostModel> make_cost_model(const Topology& topology);

}  // namespace tessera::torchrec
