// gpu/upload.h - copies small host arrays to the device as kernel arguments: nothing is staged, nothing waits, and a
// captured graph contains the bytes itself.
#pragma once

#include <cstddef>

#include "gpu/gpu.h"

namespace tessera::gpu {

// `to` is device memory, aligned to 8 bytes, with space for `bytes` rounded up to 8. One launch per 3840 bytes.
void upload(void* to, const void* from, size_t bytes, Stream stream);

}  // namespace tessera::gpu
