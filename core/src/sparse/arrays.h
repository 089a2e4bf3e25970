// Pieces that the sparse types share: row lists, slices with errors instead of aborts, concatenation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::sparse {

// A 1-D int32 or int64 tensor, or kInvalidArgument naming `what` ("lengths"). Other integers become int32, as does a
// tensor without elements, whatever its type.
Tensor checked_integers(Tensor tensor, const char* what);

// offsets[0] = 0, offsets[i + 1] = offsets[i] + lengths[i], of the dtype of `lengths`; kOutOfRange where that is too
// small. And back; offsets without elements give lengths without elements. Where the input is on a device, so is the
// output; sums are not looked at there, and the way back waits.
Tensor offsets_of(const Tensor& lengths);
Tensor lengths_of(const Tensor& offsets);

// Element i of an int32 or int64 tensor.
inline int64_t integer_at(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DType::kInt32 ? static_cast<const int32_t*>(tensor.raw())[i]
                                         : static_cast<const int64_t*>(tensor.raw())[i];
}

// Sum of elements [first, first + count) of an int32 or int64 tensor; kOutOfRange past int64.
int64_t sum_of(const Tensor& tensor, int64_t first, int64_t count);

// offsets[first + count] - offsets[first]; kOutOfRange where that is negative.
int64_t span_of(const Tensor& offsets, int64_t first, int64_t count);

// Rows [first, last), shared, for positions that come from data: kOutOfRange names `what` ("values") and the bound.
Tensor rows_of(const Tensor& tensor, int64_t first, int64_t last, const char* what);

// Elements per entry of the first dimension: 1 for a 1-D tensor.
int64_t row_width(const Tensor& tensor);

// One behind the other along `axis`; sizes elsewhere agree (kInvalidArgument). Types are promoted as in PyTorch: the
// wider integer, and floating point before integers. A 1-D tensor without elements fits everything.
Tensor concat(std::span<const Tensor> tensors, int64_t axis);

// [0, counts[0], counts[0] + counts[1], ...]; kOutOfRange past int64.
std::vector<int64_t> cumulative(const std::vector<int64_t>& counts);

// The position of `key`, or kNotFound with the keys there are.
int64_t position_of(std::string_view key, const std::vector<std::string>& keys);

}  // namespace tessera::sparse
