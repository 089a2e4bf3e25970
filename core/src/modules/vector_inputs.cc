#include "modules/vector_inputs.h"

#include <algorithm>

namespace tessera {
namespace {
constexpr const char* kNumbers = "dense";
}  // namespace

std::vector<VectorInput> vectors_of(const ModelGraph& graph) {
  std::vector<GraphInput> found;
  std::copy_if(graph.inputs.begin(), graph.inputs.end(), std::back_inserter(found),
               [](const GraphInput& i) { return i.from == GraphInput::kDense && i.name != kNumbers; });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.column < b.column; });
  std::vector<VectorInput> out;
  for (const GraphInput& input : found) out.push_back({input.name, input.width});
  return out;
}

void add_vector_inputs(const std::vector<VectorInput>& vectors, ModelGraph& graph) {
  if (vectors.empty()) return;
  int64_t column = graph.dense_width;
  for (const VectorInput& v : vectors) column -= v.width;
  if (column < 0) fail(Code::kInvalidArgument, "the vectors have more values than the dense values of a sample");
  for (GraphInput& input : graph.inputs) {
    if (input.name == kNumbers) input.width = column;
  }
  for (const VectorInput& v : vectors) {
    const auto has_name = [&](const GraphInput& input) { return input.name == v.name; };
    if (std::any_of(graph.inputs.begin(), graph.inputs.end(), has_name))
      fail(Code::kInvalidArgument, "the vector column \"", v.name,
           "\" has the name of another input of the model: give it another name");
    graph.inputs.push_back({v.name, GraphInput::kDense, column, v.width});
    column += v.width;
  }
}

}  // namespace tessera
