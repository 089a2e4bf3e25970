// Copies of data larger than caches.
#pragma once

#include <cstddef>

namespace tessera::tcp {

// A memcpy() that bypasses the cache for the target, if the processor can. The target is not read before it is written,
// and nothing else is evicted. Use it for targets that are not read again soon.
void copy_past_cache(char* to, const char* from, size_t bytes);

}  // namespace tessera::tcp
