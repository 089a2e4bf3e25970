// The inputs of a model in the Open Inference Protocol, for its metadata and for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol.h"
#include "serve/tensor_request.h"

namespace tessera::serve {

// The model's name for clients.
inline std::string_view served_name(const ModelDescription& model, const InferLimits& limits) {
  return limits.name.empty() ? std::string_view(model.name) : limits.name;
}

struct InputForm {
  std::string name, datatype;
  std::vector<int64_t> shape;  // -1: as in the request
};
// `columns`: of the data that the model was trained on, or null.
std::vector<InputForm> inputs_of(const ModelDescription& model, const ColumnEncoding* columns);

// The message that refuses a request without input `name`: the inputs of the model, and an example.
std::string missing_text(const ModelDescription& model, const std::string& name, const TensorRequest& request,
                         const InferLimits& limits);

// Throws kInvalidArgument for more inputs than the model can have, and for many more outputs. Call this before making a
// list of them.
void check_numbers(const ModelDescription& model, const InferLimits& limits, size_t inputs, size_t outputs);

// The part of parse_tensors() that rows share. Throws MissingInput.
InferRequest take_tensors(const ModelDescription& model, const TensorRequest& request, const InferLimits& limits);

}  // namespace tessera::serve
