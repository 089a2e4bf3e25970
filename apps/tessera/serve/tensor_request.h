// An inference request as tensors with names, in no protocol's terms. HTTP's translator makes it from JSON
// (infer_json.h), and that of endpoints from their structs (endpoint.h). All members are views of the translator's
// memory.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/abi/draft/endpoint.h"

namespace tessera::serve {

struct RequestTensor {
  enum class Data {
    kNone,     // the client sent none
    kBytes,    // `bytes`: the elements, row by row, little-endian; of BYTES each text after its length, a uint32
    kTexts,    // `texts`
    kNumbers,  // `numbers`: those of JSON, which get a type only when they are read
  };

  std::string_view name, datatype;  // as in the Open Inference Protocol
  std::span<const int64_t> shape;
  Data data = Data::kNone;
  std::string_view bytes = {};
  std::span<const tsr_endpoint_text> texts = {};
  std::span<const int64_t> numbers = {};
  std::string_view where = {};  // for messages: the place of texts and numbers in the request, such as " in \"data\""
  // The rest describes numbers.
  bool real = false;     // true if these are doubles (bit patterns), not int64
  bool truth = false;    // true if these are truth values: 1 and 0
  bool large = false;    // true if these are uint64 (bit patterns) and one of them is 2^63 or more
  bool rounded = false;  // true if an integer has lost digits, because other values are doubles
  bool taken = false;    // true if these are numbers after their column's `take`

  size_t count() const { return data == Data::kTexts ? texts.size() : numbers.size(); }
  double number(size_t i) const {
    if (real) return std::bit_cast<double>(numbers[i]);
    return large ? static_cast<double>(static_cast<uint64_t>(numbers[i])) : static_cast<double>(numbers[i]);
  }
};

struct TensorRequest {
  struct Output {
    std::string_view name;
    std::optional<bool> binary = std::nullopt;
  };

  std::string_view id;
  std::optional<int64_t> timeout_us = std::nullopt;  // the client's own limit; ignored unless it is above 0
  std::vector<RequestTensor> inputs = {};
  std::vector<Output> outputs = {};  // those that the client names; empty: all
  // These are set only for requests over HTTP.
  bool binary_output = false;     // the client wants outputs as bytes
  std::string_view unknown = {};  // the request's first member that the protocol does not define
};

}  // namespace tessera::serve
