// The JSON of an inference request, read in one pass into a flat list of tensors: no tree is built, so what a request
// costs is bounded by its size.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::serve {

struct JsonTensor {
  std::string name, datatype;
  std::vector<int64_t> shape;
  std::optional<int64_t> binary_size;  // "binary_data_size"
  bool has_data = false;               // "data" was there
  size_t first = 0, count = 0;         // its numbers in InferJson::numbers, or its texts in InferJson::texts
  bool real = false;                   // these are doubles (bit patterns), not int64
  bool text = false;                   // these are texts
  bool truth = false;                  // these are true (1) and false (0)
  bool large = false;                  // these are uint64 (bit patterns), and one of them is 2^63 or more
  bool negative = false;               // an integer below 0 is among them
  bool rounded = false;                // an integer among them has lost digits, because others are doubles
  bool taken = false;                  // these are numbers after `take` of their column
  size_t nulls = 0;                    // so many of the first are null
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
  std::string unknown;           // the first member of the request that the protocol does not have
  std::vector<int64_t> numbers;  // of all tensors, row by row; null is NaN
  // Bytes of texts, one behind the other; text i is [ends[i], ends[i + 1]).
  std::string texts;
  std::vector<int64_t> ends = {0};
  std::vector<size_t> no_texts;  // which of the texts are null, ascending

  double real(const JsonTensor& t, size_t i) const {
    const int64_t bits = numbers[t.first + i];
    if (t.real) return std::bit_cast<double>(bits);
    return t.large ? static_cast<double>(static_cast<uint64_t>(bits)) : static_cast<double>(bits);
  }
};

// What a model has room for.
struct InferJsonLimits {
  size_t inputs = 0, outputs = 0;  // tensors
};

// Keys that the protocol does not name are passed over. kInvalidArgument: no JSON (with the place), a member of the
// wrong type, more inputs than there can be, or many more outputs, nested too deep.
InferJson read_infer_json(std::string_view text, const InferJsonLimits& limits);

// A client's text in an error: at most so many bytes of it.
std::string shown(std::string_view text);

}  // namespace tessera::serve
