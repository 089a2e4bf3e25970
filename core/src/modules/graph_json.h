// A graph of layers as JSON, in checkpoints and packed models: {"dense_inputs", "layers", "heads"}. Inputs are not in
// it, except vectors: they follow from the tables.
#pragma once

#include "config/json.h"
#include "tessera/layer_graph.h"

namespace tessera {

nlohmann::ordered_json to_json(const ModelGraph& graph);
// kInvalidArgument, or the source's code: members that are missing or of another type, and check_graph().
ModelGraph graph_from(const config::JsonObject& json, const std::vector<EmbeddingBagConfig>& tables);

}  // namespace tessera
