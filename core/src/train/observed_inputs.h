// What the training data says of the tables' inputs, where the config leaves it open.
#pragma once

#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/planner.h"

namespace tessera {

// From some batches of the training part: ids per bag of tables without pooling_factor, and how much more often popular
// rows are asked for (ParameterConstraints::zipf_exponent). The same on every rank.
void observe_inputs(const Dataset& data, const std::vector<TableConfig>& tables, int64_t batch,
                    PlannerOptions* options);

}  // namespace tessera
