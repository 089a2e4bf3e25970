// Copies of what is larger than caches.
#pragma once

#include <cstddef>

namespace tessera::tcp {

// memcpy() whose target does not pass through the cache, where the processor can do that: it is not read before it is
// written, and nothing else is driven out. For targets that are not read again soon.
void copy_past_cache(char* to, const char* from, size_t bytes);

}  // namespace tessera::tcp
