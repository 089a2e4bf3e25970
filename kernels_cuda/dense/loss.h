// The loss of click models on the device: abi/device.h has the formula.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/device.h"

namespace tessera::gpu {

// One launch of one block, whose threads add up in a fixed order.
void binary_cross_entropy(const tsr_binary_cross_entropy& loss, Stream stream);

}  // namespace tessera::gpu
