// Clips gradients by norm or value: abi/draft/device_ops.h has the formulas.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// The norm takes one launch per kMostGradients gradients and one more. Clipping takes one per kMostGradients gradients.
// Throws sdk::Failure(TSR_UNIMPLEMENTED) for an unknown mode.
inline constexpr uint32_t kMostGradients = 128;
void clip_gradients(const tsr_clipping& clipping, Stream stream);

}  // namespace tessera::gpu
