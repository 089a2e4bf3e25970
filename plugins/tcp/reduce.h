// Elementwise reductions of host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/abi/tensor.h"

namespace tessera::tcp {

// to[i] = a[i] op b[i] for `bytes` bytes of whole elements. `to` may be `a` or `b`; otherwise nothing overlaps. The
// operands' order is kept, so that equal inputs in equal order give equal bits on every rank.
using ReduceFn = void (*)(void* to, const void* a, const void* b, size_t bytes);

// For float32, float64, int32 and int64 (which wraps around), and TSR_REDUCE_*. Failure(TSR_UNIMPLEMENTED) otherwise.
ReduceFn reduce_function(DLDataType dtype, int32_t op);

}  // namespace tessera::tcp
