// Rows between packed and spread form, on the device: abi/draft/device_ops.h says what that means.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// One launch each. Every element of the targets has one thread that adds its arrivals up in their order: the sums do
// not depend on timing.
void combine_rows(const tsr_row_moves& moves, Stream stream);
void split_rows(const tsr_row_moves& moves, Stream stream);

}  // namespace tessera::gpu
