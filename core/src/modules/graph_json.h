// A graph of layers as JSON in checkpoints and packed models: {"dense_inputs", "layers", "heads"}. Inputs other than
// vectors are left out, because they follow from the tables.
#pragma once

#include "config/json.h"
#include "tessera/layer_graph.h"

namespace tessera {

nlohmann::ordered_json to_json(const ModelGraph& graph);
// Throws kInvalidArgument, or the source's code, for members that are missing or of another type, and the errors of
// check_graph().
ModelGraph graph_from(const config::JsonObject& json, const std::vector<EmbeddingBagConfig>& tables);

}  // namespace tessera
