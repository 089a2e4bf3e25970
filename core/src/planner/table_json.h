// Reads tables from JSON: from the file of `tessera plan --tables` and from tessera.h's descriptions.
#pragma once

#include "config/json.h"
#include "tessera/embedding_configs.h"
#include "tessera/planner.h"

namespace tessera {

// Reads {"name": "exact_sgd", "learning_rate": 0.1, ...}. Keys other than name and max_gradient are the optimizer's
// own.
OptimizerSpec optimizer_from(const config::JsonObject& object);

// Reads a table and its constraints (docs/plans.md#constraints). Unknown keys are errors.
EmbeddingBagConfig table_from(const config::JsonObject& object, ParameterConstraints& constraints);

}  // namespace tessera
