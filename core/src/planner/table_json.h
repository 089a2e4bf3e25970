// Tables as JSON describes them: in the file of `tessera plan --tables` and in tessera.h's descriptions.
#pragma once

#include "config/json.h"
#include "tessera/embedding_configs.h"
#include "tessera/planner.h"

namespace tessera {

// {"name": "exact_sgd", "learning_rate": 0.1, ...}: all but name and max_gradient are the part's own.
OptimizerSpec optimizer_from(const config::JsonObject& object);

// A table, and what is said of its input and of how it may be cut (docs/plans.md#constraints). Unknown keys are errors.
EmbeddingBagConfig table_from(const config::JsonObject& object, ParameterConstraints& constraints);

}  // namespace tessera
