// Maps text values to table rows: mix(fnv1a(text)) mod rows. It must never change, because prepared files depend on it.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/fnv1a.h"

namespace tessera::data {

using tessera::fnv1a;

// The finalizer of MurmurHash3 without its last step.
constexpr uint64_t mix(uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdu;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53u;
  h ^= h >> 33;
  return h;
}

// Row of the value `prefix` + `text`: row_of("g=", "Comedy", 256).
constexpr int64_t row_of(std::string_view prefix, std::string_view text, int64_t rows) {
  return static_cast<int64_t>(mix(fnv1a(text, fnv1a(prefix))) % static_cast<uint64_t>(rows));
}

}  // namespace tessera::data
