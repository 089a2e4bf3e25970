// gpu/forward.h - the lookup's launch.
#pragma once

#include "gpu/gpu.h"
#include "gpu/views.h"

namespace tessera::gpu {

// The number of blocks for a feature's bags.
int64_t forward_blocks(int64_t bags, int32_t dim);

// Computes every bag's output row, with `blocks` blocks as FeatureView::first_block counts them. Adds the ids of each
// feature to lookups[table].
void launch_forward(const BatchView& batch, int64_t blocks, Storage rows, Storage out, void* output, uint64_t* lookups,
                    Stream stream);

}  // namespace tessera::gpu
