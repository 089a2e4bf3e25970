// Which virtual bucket of a table an id belongs to. Limits and evictions are those of a bucket, and whoever owns rows
// owns whole buckets: so what survives does not depend on the number of owners.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flagships {

// The finalizer of SplitMix64: no two ids share a value.
constexpr uint64_t scrambled(int64_t id) {
  auto x = static_cast<uint64_t>(id) + 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// The first bits of a hash name one of so many cells, and no bucket of a table that is worth being cut lies in two: who
// owns cells owns whole buckets.
constexpr int64_t cell_of(uint64_t hash) { return static_cast<int64_t>(hash >> 58); }

struct Buckets {
  static constexpr int64_t kSlots = 120;  // of a bucket, at most
  static constexpr int64_t kCells = 64;   // as cell_of gives

  Buckets() = default;
  // Room for `capacity` rows; less than one for each bucket stays unused.
  explicit Buckets(int64_t capacity) : count(count_for(capacity)), slots(capacity / count) {}

  // Equal shares of the hashes, of which the upper half decides.
  int64_t of(uint64_t hash) const { return static_cast<int64_t>((hash >> 32) * static_cast<uint64_t>(count) >> 32); }

  int64_t count = 1;
  int64_t slots = 0;  // of each

 private:
  static int64_t count_for(int64_t capacity) {
    if (capacity < kCells) return std::max<int64_t>(1, capacity / 16);  // not worth being cut
    const int64_t needed = (capacity + kSlots - 1) / kSlots;
    return (needed + kCells - 1) / kCells * kCells;
  }
};

}  // namespace flagships
