// FNV-1a (Fowler, Noll, Vo): a hash of text that is the same on every machine and in every version.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

// 64-bit hash over the bytes. `hash` continues an earlier text.
constexpr uint64_t fnv1a(std::string_view text, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tessera
