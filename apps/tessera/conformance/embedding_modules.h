// Shared by the two files of area "embedding_modules" and by others that need tables.
#pragma once

#include <string>
#include <vector>

#include "conformance/runner.h"
#include "tessera/embedding_modules.h"

namespace tessera::cli {

// given.tables without their weights. If `pooled`, they have each table's pooling; otherwise kNone.
std::vector<EmbeddingBagConfig> table_configs_from(const json& tables, bool pooled);
// Sets the weights that the case gives.
void set_table_weights(EmbeddingTables& collection, const json& tables);
CollectionOptions collection_options_from(const CaseContext& c, bool pooled);

// Op "error": finds the call that `what` describes and makes it with the given inputs, or with the smallest that fit.
void embedding_error_op(CaseContext& c);

}  // namespace tessera::cli
