// Gradients clipped by their norm or value: abi/draft/device_ops.h has the formulas.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// The norm takes a launch for every kMostGradients gradients and one more, clipping one for as many. sdk::Failure
// TSR_UNIMPLEMENTED: a mode that is not known here.
inline constexpr uint32_t kMostGradients = 128;
void clip_gradients(const tsr_clipping& clipping, Stream stream);

}  // namespace tessera::gpu
