// The messages of the Open Inference Protocol v2 (KServe) with its binary-tensor extension: converts bytes to arrays
// and back. It knows no socket, no queue, and of a model only its description.
//
// Inputs: `dense` FP32 [B, n] if the model has dense inputs. Each feature has `NAME.values` INT64 [N] and
// `NAME.lengths`
// INT32 [B]. If the model is weighted, `NAME.weights` FP32 [N] may give weights other than 1.
// Outputs: FP32 [B], or [B, values] for a head with several values per sample. A model with one head has the output
// `score`; others have one output per head, by its name, and `score` is the first. A model that answers with items has
// `score` FP32 [B, K] and `item` INT64 [B, K].
// A model that knows its columns (docs/data.md) takes the values that stood in its files. For a text column,
// `NAME.values` [N] has any datatype, and a number stands for its word (tessera/sdk/values.h). For a bucket column, it
// has numbers of any datatype. `NAME.rows` INT64 [N] has row numbers instead. Instead of `dense`, each dense column has
// numbers [B] under its name. Crosses have no values.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/predictor.h"

namespace tessera {
class ColumnEncoding;
}

namespace tessera::serve {

struct TensorRequest;  // tensor_request.h
class HistoryMaker;    // history_maker.h
class KeptHistories;   // histories.h

// True if its outputs are scores and item numbers (retrieval/retriever.h).
inline bool answers_items(const ModelDescription& model) { return model.type == "top_k"; }

inline constexpr std::string_view kScore = "score";
// The name of an output in this protocol.
inline std::string_view output_name(const ModelDescription& model, size_t output) {
  return model.outputs.size() == 1 ? kScore : std::string_view(model.outputs[output].name);
}

// One output that a request asks for.
struct WantedOutput {
  size_t output = 0;    // index of the model's output
  std::string name;     // the name that the request used
  bool binary = false;  // returned as bytes after the JSON
};

// A parsed request that owns its arrays. `features` are views of them; a request is moved, never copied.
struct InferRequest {
  InferRequest() = default;
  InferRequest(InferRequest&&) = default;
  InferRequest& operator=(InferRequest&&) = default;

  std::string id;                                    // repeated in the response
  std::vector<WantedOutput> outputs;                 // in the order of the answer; empty: all outputs
  bool binary_output = false;                        // return all of them as bytes after the JSON
  bool rows = false;                                 // the request came as rows (score_rows.h), so its answer is rows
  std::optional<std::chrono::microseconds> timeout;  // the client's own limit (parameter "timeout")

  int64_t batch = 0;
  std::vector<float> dense;                     // [batch, dense_inputs]
  std::vector<PredictInput::Feature> features;  // in the order of ModelDescription::features
  std::vector<int64_t> values;                  // of all features
  std::vector<int32_t> lengths;                 // [features, batch]
  std::vector<float> weights;                   // for features that have weights

  PredictInput input() const { return {batch, dense, features}; }
};

struct InferLimits {
  int64_t max_samples = 1024;               // per request
  const ColumnEncoding* columns = nullptr;  // of a model with ModelDescription::encoding; otherwise null
  std::string_view name = {};               // the model's name here; empty: the name in the packed model
  HistoryMaker* maker = nullptr;            // for events that rows bring; null: the model knows no histories
  KeptHistories* kept = nullptr;            // null: the server keeps none
};

// Converts the request's tensors to arrays for the model. The result can be passed to the model's why_not(): arrays
// have matching sizes, lengths add up, dense values and weights are finite. Throws kInvalidArgument, a sentence that
// names the tensor, the sample and the bound. Memory is bounded by a multiple of the request's size.
InferRequest parse_tensors(const ModelDescription& model, const TensorRequest& request, const InferLimits& limits);

// The same for a request over HTTP. `body` is JSON. With `json_bytes` (the header Inference-Header-Content-Length), it
// is that many bytes of JSON, then the bytes of the tensors with "binary_data_size", in their order.
InferRequest parse_infer(const ModelDescription& model, std::string_view body, std::optional<size_t> json_bytes,
                         const InferLimits& limits = {});

// An output of an answer as a tensor.
struct AnsweredOutput {
  std::string_view name;
  bool items = false;              // true: item numbers, INT64; false: FP32
  bool binary = false;             // returned as bytes after the JSON
  std::array<int64_t, 2> shape{};  // [samples], or [samples, values]
  size_t dims = 1;
  std::span<const float> values;
};
// The outputs that `request` asks for, in the order of the answer. `values` are those of all outputs of the model,
// sample by sample. The result has views of all arguments.
std::vector<AnsweredOutput> outputs_of(const ModelDescription& model, const InferRequest& request,
                                       std::span<const std::span<const float>> values);

// The body of a response; json_bytes is set if bytes of tensors follow the JSON.
struct InferResponse {
  std::string body;
  std::optional<size_t> json_bytes;
};
// The answer to `request`. `name` is the model's name here; `values` are those of all its outputs, sample by sample.
// Floats are written with as many digits as read back to the same float.
InferResponse render_infer(const ModelDescription& model, std::string_view name, const InferRequest& request,
                           std::span<const std::span<const float>> values);

std::string render_server();
// `versions` has all versions of this name. `columns` is from the data that the model was trained on, or null; if set,
// inputs are described as values of such data.
std::string render_model(const ModelDescription& model, std::string_view name, const std::vector<std::string>& versions,
                         const ColumnEncoding* columns = nullptr);
std::string render_error(std::string_view sentence);

}  // namespace tessera::serve
