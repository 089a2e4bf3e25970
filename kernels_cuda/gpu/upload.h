// gpu/upload.h - copies small host arrays to the device as kernel arguments. It needs no staging memory and does not
// wait, and a captured graph contains the bytes.
#pragma once

#include <cstddef>

#include "gpu/gpu.h"

namespace tessera::gpu {

// `to` is device memory, aligned to 8 bytes, with space for `bytes` rounded up to 8. Takes one launch per 3840 bytes.
void upload(void* to, const void* from, size_t bytes, Stream stream);

}  // namespace tessera::gpu
