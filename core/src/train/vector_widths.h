// Sets the option "dim" of layers that take concatenated vectors, such as rows of tables.
#pragma once

#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/runtime.h"

namespace tessera {

// A layer that takes only outputs of pooled tables, and leaves out its option "dim", gets the tables' embedding_dim if
// all have the same. kInvalidArgument: the layer's options give another number. dim = 1 is allowed: each value is a
// vector by itself.
void set_vector_widths(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, ModelGraph& graph);

}  // namespace tessera
