// The loss of click models on the device: abi/draft/device_ops.h has the formula.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// Takes a launch of one block, whose threads sum in a fixed order.
void binary_cross_entropy(const tsr_binary_cross_entropy& loss, Stream stream);

}  // namespace tessera::gpu
