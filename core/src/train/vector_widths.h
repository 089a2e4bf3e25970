// The option "dim" of layers that take vectors which lie one after the other, as rows of tables do.
#pragma once

#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/runtime.h"

namespace tessera {

// A layer that takes outputs of pooled tables alone, and has a "dim" that its options leave out, is told the tables'
// embedding_dim, if all have one. kInvalidArgument: its options say another one; 1, each value by itself, may stand.
void set_vector_widths(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, ModelGraph& graph);

}  // namespace tessera
