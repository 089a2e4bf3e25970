// Merges the best items of several parts of the items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::retrieval {

// The result of one part for `batch` queries, as bytes: scores float32 [batch, k], then items int32 [batch, k], the
// best first. Missing items are -1.
struct FoundByPart {
  std::span<float> scores;
  std::span<int32_t> items;
  static int64_t bytes_of(int64_t k) { return k * static_cast<int64_t>(sizeof(float) + sizeof(int32_t)); }
  // `bytes` must be aligned for float32.
  static FoundByPart in(std::span<std::byte> bytes, int64_t batch, int64_t k);
};

// The k best of all parts, by score, then by lower item number. The parts have at least k items together. scores and
// items are [batch, k].
void best_of_parts(std::span<const FoundByPart> parts, int64_t k, std::span<float> scores, std::span<float> items);

}  // namespace tessera::retrieval
