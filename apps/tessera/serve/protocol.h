// The messages of the Open Inference Protocol v2 (KServe) with its binary-tensor extension: bytes to arrays and back.
// Knows no socket, no queue, no model beyond its description.
//
// Inputs: `dense` FP32 [B, n] where the model has dense inputs; for each feature `NAME.values` INT64 [N] and
// `NAME.lengths` INT32 [B], and `NAME.weights` FP32 [N] where the model is weighted and the client wants other weights
// than 1. Outputs: FP32 [B], or of a head with several values a sample [B, values]: `score` of a model with one head,
// of others one for each head, by its name, and `score` is the first one. Of a model that answers with items `score`
// FP32 [B, K] and `item` INT64 [B, K]. A model that knows its columns (docs/data.md) takes what stood in its files:
// `NAME.values` [N] of any datatype of a column of texts, where a number is its word (tessera/sdk/values.h), numbers of
// any datatype of one of buckets; `NAME.rows` INT64 [N] instead has numbers of rows. Instead of `dense` there are
// numbers [B] for each dense column, by its name; and no values of crosses.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/predictor.h"

namespace tessera::data {
class Columns;
}

namespace tessera::serve {

// Whether its outputs are scores and the numbers of items (retrieval/retriever.h).
inline bool answers_items(const ModelDescription& model) { return model.type == "top_k"; }

inline constexpr std::string_view kScore = "score";
// What an output is called here.
inline std::string_view output_name(const ModelDescription& model, size_t output) {
  return model.outputs.size() == 1 ? kScore : std::string_view(model.outputs[output].name);
}

// What a request asks for.
struct WantedOutput {
  size_t output = 0;    // of the model
  std::string name;     // by which it was asked for
  bool binary = false;  // as bytes after the JSON
};

// A request, taken apart and owned. `features` are views of the arrays here: moved, never copied.
struct InferRequest {
  InferRequest() = default;
  InferRequest(InferRequest&&) = default;
  InferRequest& operator=(InferRequest&&) = default;

  std::string id;                                    // echoed in the response
  std::vector<WantedOutput> outputs;                 // in the order of the answer; empty: all that there are
  bool binary_output = false;                        // all of them as bytes after the JSON
  bool rows = false;                                 // it came as rows (score_rows.h), and so goes its answer
  std::optional<std::chrono::microseconds> timeout;  // what the client wants at most (parameter "timeout")

  int64_t batch = 0;
  std::vector<float> dense;                     // [batch, dense_inputs]
  std::vector<PredictInput::Feature> features;  // as ModelDescription::features
  std::vector<int64_t> values;                  // of all features
  std::vector<int32_t> lengths;                 // [features, batch]
  std::vector<float> weights;                   // of the features that have some

  PredictInput input() const { return {batch, dense, features}; }
};

struct InferLimits {
  int64_t max_samples = 1024;              // of one request
  const data::Columns* columns = nullptr;  // of a model that knows them: ModelDescription::encoding
  std::string_view name = {};              // what the model is called here; empty: as it was packed
};

// `body` is JSON; with `json_bytes` (the header Inference-Header-Content-Length) so many bytes of JSON, then the bytes
// of the tensors that have "binary_data_size", in their order. What comes back can be handed to the model's why_not():
// all arrays have the sizes that belong together, lengths add up, dense values and weights are finite.
// kInvalidArgument: a sentence that names the tensor, the sample and the bound. Memory is bounded by a multiple of the
// body's size.
InferRequest parse_infer(const ModelDescription& model, std::string_view body, std::optional<size_t> json_bytes,
                         const InferLimits& limits = {});

// A response's body; json_bytes is set when bytes of tensors follow the JSON.
struct InferResponse {
  std::string body;
  std::optional<size_t> json_bytes;
};
// The answer to `request`. `name` is what the model is called here; `values` are those of all its outputs, sample by
// sample. Floats are written with as many digits as give the same float back.
InferResponse render_infer(const ModelDescription& model, std::string_view name, const InferRequest& request,
                           std::span<const std::span<const float>> values);

std::string render_server();
// `versions`: all that there are of this name. `columns`: of the data that the model was trained on, or null; inputs
// are described as what stands in such data then.
std::string render_model(const ModelDescription& model, std::string_view name, const std::vector<std::string>& versions,
                         const data::Columns* columns = nullptr);
std::string render_error(std::string_view sentence);

}  // namespace tessera::serve
