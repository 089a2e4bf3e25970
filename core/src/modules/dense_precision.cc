#include <algorithm>

#include "tessera/layer_graph.h"

namespace tessera {
namespace {

// The reason why the model cannot compute products in bfloat16, or why "auto" should not; kOk: there is none.
struct Obstacle {
  Code code = Code::kOk;
  std::string sentence = {};
};

Obstacle obstacle_to_bf16(const Runtime& runtime, const ModelGraph& graph, const std::string& wanted,
                          const DeviceStreamPtr& stream) {
  if (stream) {
    return {Code::kUnimplemented, str_cat("products in bfloat16 are computed in host memory, but the dense part is on ",
                                          stream->id(), ": take float32, or job.device = \"cpu\"")};
  }
  const auto multiplies = [&](const LayerSpec& layer) {
    return has_precision(runtime, layer.type, stream, kBfloat16Precision);
  };
  if (std::none_of(graph.layers.begin(), graph.layers.end(), multiplies))
    return {Code::kInvalidArgument, "no layer of the model has products in bfloat16: take float32"};
  try {
    const LayerGraph tried(runtime, graph, {.describes = true, .precision = wanted, .sequence_heads = true});
  } catch (const Error& e) {
    if (e.code() != Code::kUnavailable) throw;
    return {e.code(), e.what()};
  }
  return {};
}

}  // namespace

DensePrecision choose_precision(const Runtime& runtime, const ModelGraph& graph, const std::string& wanted,
                                const DeviceStreamPtr& stream) {
  if (wanted == kFloat32Precision) return {};
  if (wanted == kInt8Precision)
    fail(Code::kInvalidArgument, "dense_precision = \"int8\" cannot be used here: train in float32 or bfloat16, and ",
         "pack the model with tessera quantize --dense int8");
  if (wanted != kBfloat16Precision && wanted != kAutoPrecision)
    fail(Code::kInvalidArgument, "dense_precision is \"", wanted, "\", but must be float32, bfloat16 or auto");
  const Obstacle obstacle = obstacle_to_bf16(runtime, graph, wanted, stream);
  if (obstacle.code == Code::kOk) return {kBfloat16Precision};
  if (wanted == kAutoPrecision) return {kFloat32Precision, obstacle.sentence};
  throw Error(obstacle.code, str_cat("dense_precision = \"bfloat16\" cannot be used: ", obstacle.sentence));
}

}  // namespace tessera
