// What a model takes: the inputs of the Open Inference Protocol, for its metadata and for sentences.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/infer_json.h"
#include "serve/protocol.h"

namespace tessera::serve {

// What the client calls the model.
inline std::string_view served_name(const ModelDescription& model, const InferLimits& limits) {
  return limits.name.empty() ? std::string_view(model.name) : limits.name;
}

struct InputForm {
  std::string name, datatype;
  std::vector<int64_t> shape;  // -1: as the request has it
};
// `columns`: of the data that the model was trained on, or null.
std::vector<InputForm> inputs_of(const ModelDescription& model, const data::Columns* columns);

// Why a request without `name` is refused: what the model takes, and an example.
std::string missing_text(const ModelDescription& model, const std::string& name, const InferJson& json,
                         const InferLimits& limits);

// The rest of parse_infer(): tensors that were found, the bytes behind their JSON. Throws MissingInput.
InferRequest take_tensors(const ModelDescription& model, InferJson& json, std::string_view bytes,
                          const InferLimits& limits);

}  // namespace tessera::serve
