// Inputs of a graph that are vectors in the data, such as pretrained vectors of a text or an image.
#pragma once

#include <string>
#include <vector>

#include "tessera/layer_graph.h"

namespace tessera {

struct VectorInput {
  std::string name;
  int64_t width = 0;
};

// Returns the graph's vectors in the order of their values, which are the last dense values.
std::vector<VectorInput> vectors_of(const ModelGraph& graph);
// Makes an input of the last dense values for each vector. The input "dense" keeps the other values. kInvalidArgument:
// another input has a vector's name, or there are fewer dense values.
void add_vector_inputs(const std::vector<VectorInput>& vectors, ModelGraph& graph);

}  // namespace tessera
