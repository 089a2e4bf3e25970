#include <algorithm>

#include "tessera/layer_graph.h"

namespace tessera {
namespace {

// Fails if the model cannot have products in bfloat16.
void check_bf16(const Runtime& runtime, const ModelGraph& graph, const DeviceStreamPtr& stream) {
  if (stream)
    fail(Code::kUnimplemented, "products in bfloat16 are computed in host memory, but the dense part is on \"",
         stream->id(), "\"");
  const auto multiplies = [&](const LayerSpec& layer) { return has_precision(runtime, layer.type, stream); };
  if (std::none_of(graph.layers.begin(), graph.layers.end(), multiplies))
    fail(Code::kInvalidArgument, "no layer of the model has products in bfloat16");
  const LayerGraph tried(runtime, graph, {.describes = true, .precision = kBfloat16Precision, .sequence_heads = true});
}

}  // namespace

DensePrecision choose_precision(const Runtime& runtime, const ModelGraph& graph, const std::string& wanted,
                                const DeviceStreamPtr& stream) {
  if (wanted == kFloat32Precision) return {};
  if (wanted != kBfloat16Precision && wanted != kAutoPrecision)
    fail(Code::kInvalidArgument, "dense_precision = \"", wanted,
         "\" is none of \"float32\", \"bfloat16\" and \"auto\"");
  try {
    check_bf16(runtime, graph, stream);
    return {kBfloat16Precision};
  } catch (const Error& e) {
    const bool cannot =
        e.code() == Code::kUnavailable || e.code() == Code::kUnimplemented || e.code() == Code::kInvalidArgument;
    if (!cannot) throw;
    if (wanted == kAutoPrecision) return {kFloat32Precision, e.what()};
    throw Error(e.code(),
                str_cat("dense_precision = \"bfloat16\" cannot be used: ", e.what(), "; take \"float32\" or \"auto\""));
  }
}

}  // namespace tessera
