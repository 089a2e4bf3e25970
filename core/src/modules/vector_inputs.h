// Inputs of a graph that are vectors of the data: pretrained vectors of a text or an image.
#pragma once

#include <string>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

struct VectorInput {
  std::string name;
  int64_t width = 0;
};

// The graph's vectors, in the order of their values. They are the last dense values.
std::vector<VectorInput> vectors_of(const ModelGraph& graph);
// Makes inputs of the last dense values, one for each vector. The input "dense" keeps the others. kInvalidArgument:
// another input has the name of a vector, or there are fewer dense values.
void add_vector_inputs(const std::vector<VectorInput>& vectors, ModelGraph& graph);

}  // namespace tessera
