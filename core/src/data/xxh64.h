// XXH64 with seed 0, as xxHash's specification has it: what hashes texts to rows. Other languages have bindings of it,
// so a server in any of them finds a text's row.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera::data {
namespace xxh64_detail {

constexpr uint64_t kP1 = 0x9E3779B185EBCA87u, kP2 = 0xC2B2AE3D27D4EB4Fu, kP3 = 0x165667B19E3779F9u,
                   kP4 = 0x85EBCA77C2B2AE63u, kP5 = 0x27D4EB2F165667C5u;

// `bytes` of them, the first the lowest.
constexpr uint64_t number(const char* at, int bytes) {
  uint64_t out = 0;
  for (int i = 0; i < bytes; ++i) out |= static_cast<uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  return out;
}
constexpr uint64_t round(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kP2, 31) * kP1; }
constexpr uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * kP1 + kP4; }

// Of whole stripes of 32 bytes, which are taken off the text.
constexpr uint64_t stripes(std::string_view& text) {
  uint64_t a = kP1 + kP2, b = kP2, c = 0, d = 0 - kP1;
  for (; text.size() >= 32; text.remove_prefix(32)) {
    a = round(a, number(text.data(), 8));
    b = round(b, number(text.data() + 8, 8));
    c = round(c, number(text.data() + 16, 8));
    d = round(d, number(text.data() + 24, 8));
  }
  const uint64_t hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
  return merge(merge(merge(merge(hash, a), b), c), d);
}

}  // namespace xxh64_detail

constexpr uint64_t xxh64(std::string_view text) {
  using namespace xxh64_detail;
  const uint64_t size = text.size();
  uint64_t hash = (size >= 32 ? stripes(text) : kP5) + size;
  for (; text.size() >= 8; text.remove_prefix(8))
    hash = std::rotl(hash ^ round(0, number(text.data(), 8)), 27) * kP1 + kP4;
  if (text.size() >= 4) {
    hash = std::rotl(hash ^ (number(text.data(), 4) * kP1), 23) * kP2 + kP3;
    text.remove_prefix(4);
  }
  for (; !text.empty(); text.remove_prefix(1)) hash = std::rotl(hash ^ (number(text.data(), 1) * kP5), 11) * kP1;
  hash = (hash ^ (hash >> 33)) * kP2;
  hash = (hash ^ (hash >> 29)) * kP3;
  return hash ^ (hash >> 32);
}

}  // namespace tessera::data
