// Helpers of the sparse types: integer lists, slices with errors instead of aborts, concatenation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::sparse {

// Returns a 1-D int32 or int64 tensor. Other integer types become int32, and so does any tensor without elements.
// kInvalidArgument: it is not such a tensor; the message names `what` ("lengths").
Tensor checked_integers(Tensor tensor, const char* what);

// Converts lengths to offsets and back: offsets[0] = 0, offsets[i + 1] = offsets[i] + lengths[i]. The type stays the
// same; kOutOfRange if it is too small. Offsets without elements give lengths without elements. If the input is on a
// device, the output is there as well. There sums are not checked, and lengths_of() waits for the device.
Tensor offsets_of(const Tensor& lengths);
Tensor lengths_of(const Tensor& offsets);

// Element i of an int32 or int64 tensor.
inline int64_t integer_at(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DType::kInt32 ? static_cast<const int32_t*>(tensor.raw())[i]
                                         : static_cast<const int64_t*>(tensor.raw())[i];
}

// Returns the sum of elements [first, first + count) of an int32 or int64 tensor; kOutOfRange if it exceeds int64.
int64_t sum_of(const Tensor& tensor, int64_t first, int64_t count);

// Returns offsets[first + count] - offsets[first]; kOutOfRange if that is negative.
int64_t span_of(const Tensor& offsets, int64_t first, int64_t count);

// Returns rows [first, last), which share the memory. The positions may come from untrusted data. kOutOfRange: the
// message names `what` ("values") and the bound.
Tensor rows_of(const Tensor& tensor, int64_t first, int64_t last, const char* what);

// Returns the number of elements in one entry of the first dimension: 1 for a 1-D tensor.
int64_t row_width(const Tensor& tensor);

// Concatenates tensors along `axis`. Their other sizes must agree (kInvalidArgument). Types are promoted as in PyTorch,
// to the wider integer, and from integer to floating point. A 1-D tensor without elements fits every tensor.
Tensor concat(std::span<const Tensor> tensors, int64_t axis);

// Returns [0, counts[0], counts[0] + counts[1], ...]; kOutOfRange if a sum exceeds int64.
std::vector<int64_t> cumulative(const std::vector<int64_t>& counts);

// Returns the position of `key`. kNotFound: the message lists the keys.
int64_t position_of(std::string_view key, const std::vector<std::string>& keys);

}  // namespace tessera::sparse
