#include "reduce.h"

#include <type_traits>

#include "tessera/abi/collective.h"
#include "tessera/sdk/tensor.h"

namespace tessera::tcp {
namespace {

template <class T>
struct Sum {
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
struct Max {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct Min {
  T operator()(T a, T b) const { return b < a ? b : a; }
};

template <class T, class Op>
void reduce(void* to, const void* a, const void* b, size_t bytes) {
  T* out = static_cast<T*>(to);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  const size_t n = bytes / sizeof(T);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) out[i] = Op{}(left[i], right[i]);
}

template <class T>
ReduceFn function_for(int32_t op) {
  switch (op) {
    case TSR_REDUCE_SUM:
      return reduce<T, Sum<T>>;
    case TSR_REDUCE_MAX:
      return reduce<T, Max<T>>;
    case TSR_REDUCE_MIN:
      return reduce<T, Min<T>>;
    default:
      sdk::fail(TSR_UNIMPLEMENTED, "tcp reduces by sum, max and min, not by operation ", op);
  }
}

}  // namespace

ReduceFn reduce_function(DLDataType dtype, int32_t op) {
  using sdk::dtype_of, sdk::same_dtype;
  if (same_dtype(dtype, dtype_of<float>())) return function_for<float>(op);
  if (same_dtype(dtype, dtype_of<double>())) return function_for<double>(op);
  if (same_dtype(dtype, dtype_of<int32_t>())) return function_for<int32_t>(op);
  if (same_dtype(dtype, dtype_of<int64_t>())) return function_for<int64_t>(op);
  sdk::fail(TSR_UNIMPLEMENTED, "tcp reduces float32, float64, int32 and int64, not DLPack type code ", int{dtype.code},
            " with ", int{dtype.bits}, " bits");
}

}  // namespace tessera::tcp
