// Reads the JSON of an inference request in one pass into a flat list of tensors. It builds no tree, so the cost of a
// request is bounded by its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tensor_request.h"

namespace tessera::serve {

struct JsonTensor {
  std::string name, datatype;
  std::vector<int64_t> shape;
  std::optional<int64_t> binary_size;  // "binary_data_size"
  bool has_data = false;               // true if "data" was present
  // range of its numbers in InferJson::numbers, or of its texts in InferJson::texts
  size_t first = 0, count = 0;
  bool real = false;      // true if these are doubles (bit patterns), not int64
  bool text = false;      // true if these are texts
  bool truth = false;     // true if these are truth values: 1 and 0
  bool large = false;     // true if these are uint64 (bit patterns) and one of them is 2^63 or more
  bool negative = false;  // true if one of the integers is below 0
  bool rounded = false;   // true if an integer has lost digits, because other values are doubles
  bool taken = false;     // true if these are numbers after their column's `take`
  size_t nulls = 0;       // how many of the first values are null
};

struct InferJson {
  std::string id;
  std::optional<bool> binary_output;  // "binary_data_output"
  std::optional<int64_t> timeout_us;  // "timeout"
  std::vector<JsonTensor> inputs;
  struct Output {
    std::string name;
    std::optional<bool> binary;  // "binary_data"
  };
  std::vector<Output> outputs;
  std::string unknown;           // the first member of the request that the protocol does not define
  std::vector<int64_t> numbers;  // of all tensors, row by row; null is NaN
  // Bytes of all texts; text i is [ends[i], ends[i + 1]).
  std::string texts;
  std::vector<int64_t> ends = {0};
  std::vector<size_t> no_texts;               // indices of the texts that are null, ascending
  std::vector<tsr_endpoint_text> text_views;  // of all texts; filled by view()

  // The request as tensors, which are views of this object and of `bytes`, the rest of the body. Throws
  // kInvalidArgument if the tensors' sizes do not add up to the bytes.
  TensorRequest view(std::string_view bytes);
};

// Bounds that follow from the model.
struct InferJsonLimits {
  size_t inputs = 0, outputs = 0;  // numbers of tensors
};

// Throws kInvalidArgument for more inputs than the model can have, and for many more outputs.
void check_numbers(size_t inputs, size_t outputs, const InferJsonLimits& limits);

// Skips keys that the protocol does not define. Throws kInvalidArgument for invalid JSON (with the place), a member of
// the wrong type, more inputs than the model can have, many more outputs, or nesting that is too deep.
InferJson read_infer_json(std::string_view text, const InferJsonLimits& limits);

// A client's text as quoted in an error, shortened to a bounded number of bytes.
std::string shown(std::string_view text);

}  // namespace tessera::serve
