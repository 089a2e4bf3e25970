// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/tensor.h - typed views of DLTensors. All respect byte_offset, and refuse a tensor that does not fit with
// a sentence.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "tessera/abi/tensor.h"
#include "tessera/sdk/error.h"

namespace tessera::sdk {
inline namespace v1 {

// The DLDataType of a C++ type: float, double, or an integer.
template <class T>
constexpr DLDataType dtype_of() {
  using U = std::remove_cv_t<T>;
  static_assert(std::is_arithmetic_v<U> && !std::is_same_v<U, bool>);
  constexpr auto code = std::is_floating_point_v<U> ? kDLFloat : std::is_signed_v<U> ? kDLInt : kDLUInt;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * sizeof(U)), 1};
}

constexpr bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

template <class T>
bool holds(const DLTensor& tensor) {
  return same_dtype(tensor.dtype, dtype_of<T>());
}

inline int64_t numel(const DLTensor& tensor) {
  int64_t n = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) n *= tensor.shape[i];
  return n;
}

inline int64_t element_bytes(const DLTensor& tensor) { return tensor.dtype.bits * tensor.dtype.lanes / 8; }

// Returns the first byte, or NULL.
inline void* raw(const DLTensor& tensor) {
  return tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// Returns the first element without a check of the type, for types that C++ cannot name (float16 as uint16_t).
template <class T>
T* data_as(const DLTensor& tensor) {
  return static_cast<T*>(raw(tensor));
}

// Returns the elements. `what` names the tensor if its type is refused.
template <class T>
std::span<T> elements(const DLTensor& tensor, const char* what = "tensor") {
  if (!holds<T>(tensor)) {
    fail(TSR_INVALID_ARGUMENT, what, " has DLPack type code ", int{tensor.dtype.code}, " with ", int{tensor.dtype.bits},
         " bits, but needs code ", int{dtype_of<T>().code}, " with ", int{dtype_of<T>().bits});
  }
  return {data_as<T>(tensor), static_cast<size_t>(numel(tensor))};
}

// Returns the elements of a tensor that may be absent; then the result is empty.
template <class T>
std::span<T> elements_or_empty(const DLTensor* tensor, const char* what = "tensor") {
  if (tensor == nullptr) return {};
  return elements<T>(*tensor, what);
}

}  // namespace v1
}  // namespace tessera::sdk
