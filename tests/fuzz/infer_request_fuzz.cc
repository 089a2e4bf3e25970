// The server's request parser on arbitrary bytes: it refuses with one sentence, or gives arrays that belong together.
// The first byte says which model and whether there are binary tensors, the next two how much of the rest is JSON.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "fake_predictor.h"
#include "serve/merged_batch.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace {

using namespace tessera;
using namespace tessera::serve;

void require(bool good) {
  if (!good) std::abort();
}

constexpr int64_t kMostSamples = 64;

void check(const ModelDescription& model, const InferRequest& request) {
  require(request.batch >= 1 && request.batch <= kMostSamples);
  require(request.dense.size() == static_cast<size_t>(request.batch * model.dense_inputs));
  require(request.features.size() == model.features.size());
  for (const PredictInput::Feature& feature : request.features) {
    require(feature.lengths.size() == static_cast<size_t>(request.batch));
    require(feature.weights.empty() || feature.weights.size() == feature.values.size());
    int64_t sum = 0;
    for (int32_t length : feature.lengths) {
      require(length >= 0);
      sum += length;
    }
    require(sum == static_cast<int64_t>(feature.values.size()));
  }
  // Two of them put together are still one input.
  const InferRequest* both[] = {&request, &request};
  MergedBatch merged;
  require(merged.merge(both).batch == 2 * request.batch);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  FakeOptions options;
  options.is_weighted = (data[0] & 1) != 0;
  options.dense_inputs = (data[0] & 2) != 0 ? 0 : 2;
  const FakePredictor model(options);
  std::optional<size_t> json_bytes;
  if ((data[0] & 4) != 0) json_bytes = data[1] | static_cast<size_t>(data[2]) << 8;
  const std::string_view body(reinterpret_cast<const char*>(data) + 3, size - 3);
  try {
    const InferRequest request = parse_infer(model.model(), body, json_bytes, {kMostSamples});
    check(model.model(), request);
    render_infer(model.model(), "fake", request.id, request.binary_output, request.dense);
  } catch (const Error& e) {
    require(e.code() == Code::kInvalidArgument && *e.what() != '\0');
    render_error(e.what());
  }
  return 0;
}
