// Estimates properties of the tables' inputs from the training data, if the config does not set them.
#pragma once

#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/planner.h"

namespace tessera {

// Reads some batches of the training part. Estimates ids per bag for tables without pooling_factor, and the skew of row
// popularity (ParameterConstraints::zipf_exponent). The result is the same on every rank.
void observe_inputs(const Dataset& data, const std::vector<TableConfig>& tables, int64_t batch,
                    PlannerOptions* options);

}  // namespace tessera
