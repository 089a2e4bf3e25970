// gpu/forward.h - the lookup's launch.
#pragma once

#include "gpu/gpu.h"
#include "gpu/views.h"

namespace tessera::gpu {

// The blocks that a feature's bags take.
int64_t forward_blocks(int64_t bags, int32_t dim);

// Every bag's output row, by `blocks` blocks as FeatureView::first_block counts them. Adds the ids of each feature to
// lookups[table].
void launch_forward(const BatchView& batch, int64_t blocks, Storage rows, Storage out, void* output, uint64_t* lookups,
                    Stream stream);

}  // namespace tessera::gpu
