// XXH64 of xxHash with seed 0, which hashes texts to rows. Other languages have bindings of it, so servers in any of
// them find a text's row.
#pragma once

#define XXH_INLINE_ALL  // header only: nothing is linked
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::data {

inline uint64_t xxh64(const void* bytes, size_t count, uint64_t seed) { return XXH64(bytes, count, seed); }
inline uint64_t xxh64(std::string_view text) { return XXH64(text.data(), text.size(), 0); }

}  // namespace tessera::data
