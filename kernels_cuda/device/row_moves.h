// Moves rows between packed and spread form on the device; abi/draft/device_ops.h defines these.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// Each function takes one launch. A thread adds all arrivals of its element in order, so sums do not depend on timing.
void combine_rows(const tsr_row_moves& moves, Stream stream);
void split_rows(const tsr_row_moves& moves, Stream stream);

}  // namespace tessera::gpu
