// The inputs of each layer of a ModelGraph, and the order in which layers run. Names alone: no widths, no plugins.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

// An output of a layer, or an input of the model.
struct GraphLink {
  bool of_layer = false;
  size_t index = 0;   // of the layer, or of the input
  size_t output = 0;  // of the layer
};

struct GraphWiring {
  std::vector<size_t> order;                   // of layers: each behind those that it takes
  std::vector<std::vector<GraphLink>> inputs;  // of each layer
  std::vector<GraphLink> heads;
};

// kInvalidArgument: see check_graph().
GraphWiring wire(const ModelGraph& graph);

// Leaves only these heads, and the layers that lead to them. kInvalidArgument: as for wire().
void keep_heads(ModelGraph& graph, std::vector<HeadSpec> heads);

// The model's features that a head's value depends on, by index of GraphWiring::heads.
std::vector<std::string> features_of(const ModelGraph& graph, const GraphWiring& wiring, size_t head,
                                     const std::vector<EmbeddingBagConfig>& tables);

// kInvalidArgument: a head's name is none by which its scores, labels and metrics can go. Of jobs alone: models that
// were packed before may have such names.
void check_head_names(const ModelGraph& graph);

}  // namespace tessera
