// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/host_reductions.h - elementwise reductions in host memory, for transports that reduce by themselves.
//
// Compile it with -O3, because the speed of these loops depends on vectorization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tessera/abi/collective.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

// Sets to[i] = a[i] op b[i] for `bytes` bytes of whole elements. `to` may be `a` or `b`; otherwise nothing may overlap.
// The order of operands is kept, so that equal inputs in equal order give equal bits on every rank.
using ReduceFn = void (*)(void* to, const void* a, const void* b, size_t bytes);

template <class T>
struct ReduceSum {
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using Wrapping = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
    } else {
      return a + b;
    }
  }
};
template <class T>
struct ReduceMax {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct ReduceMin {
  T operator()(T a, T b) const { return b < a ? b : a; }
};

template <class T, class Op>
void reduce_elements(void* to, const void* a, const void* b, size_t bytes) {
  T* out = static_cast<T*>(to);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  const size_t n = bytes / sizeof(T);
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#elif defined(__GNUC__)
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < n; ++i) out[i] = Op{}(left[i], right[i]);
}

// Null: the operation is not one of TSR_REDUCE_*.
template <class T>
ReduceFn reduce_function_of(int32_t op) {
  switch (op) {
    case TSR_REDUCE_SUM:
      return reduce_elements<T, ReduceSum<T>>;
    case TSR_REDUCE_MAX:
      return reduce_elements<T, ReduceMax<T>>;
    case TSR_REDUCE_MIN:
      return reduce_elements<T, ReduceMin<T>>;
    default:
      return nullptr;
  }
}

// Takes float32, float64, int32, int64 (integers wrap around), and TSR_REDUCE_*. Otherwise throws
// Failure(TSR_UNIMPLEMENTED) with a sentence that begins with the transport's name.
inline ReduceFn reduce_function(std::string_view transport, DLDataType dtype, int32_t op) {
  ReduceFn (*of_type)(int32_t) = same_dtype(dtype, dtype_of<float>())     ? reduce_function_of<float>
                                 : same_dtype(dtype, dtype_of<double>())  ? reduce_function_of<double>
                                 : same_dtype(dtype, dtype_of<int32_t>()) ? reduce_function_of<int32_t>
                                 : same_dtype(dtype, dtype_of<int64_t>()) ? reduce_function_of<int64_t>
                                                                          : nullptr;
  if (of_type == nullptr) {
    fail(TSR_UNIMPLEMENTED, transport, " reduces float32, float64, int32 and int64, not DLPack type code ",
         int{dtype.code}, " with ", int{dtype.bits}, " bits");
  }
  if (const ReduceFn function = of_type(op)) return function;
  fail(TSR_UNIMPLEMENTED, transport, " reduces by sum, max and min, not by operation ", op);
}

// Reduces ((rank 0 op rank 1) op rank 2) ... over `bytes` bytes of each rank in [0, world) into `target`, which may be
// this rank's contribution. `contribution(r)` returns a pointer to rank r's data. If rank 0 is another rank, the sum
// grows in its buffer, otherwise in the target.
template <class Contribution>
void reduce_in_rank_order(ReduceFn function, int32_t world, int32_t this_rank, char* target, size_t bytes,
                          Contribution&& contribution) {
  char* sum = contribution(0);
  for (int32_t rank = 1; rank < world; ++rank) {
    char* to = rank == world - 1 || this_rank == 0 ? target : contribution(0);
    function(to, sum, contribution(rank), bytes);
    sum = to;
  }
}

}  // namespace v1
}  // namespace tessera::sdk
