// Assigns ids to the buckets of a table. Limits and evictions apply per bucket, and each rank owns whole buckets. The
// surviving rows therefore do not depend on the number of ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/sdk/random.h"

namespace extras {

// The finalizer of SplitMix64: no two ids share a value.
constexpr uint64_t scrambled(int64_t id) {
  return tessera::sdk::mixed(static_cast<uint64_t>(id) + tessera::sdk::kGoldenStep);
}

// Divides the hashes into equal ranges, the cells; the first bits of a hash give its cell. No bucket of a table is in
// two cells, so an owner of cells owns whole buckets.
struct Cells {
  static constexpr int64_t kMost = 64, kRows = 16;  // the most cells of a table, and the fewest rows per cell

  // The number of cells of a table with this number of rows, a power of two.
  static int64_t count(int64_t rows) {
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp(rows / kRows, int64_t{1}, kMost))));
  }
  static int64_t of(uint64_t hash, int64_t count) {
    return static_cast<int64_t>((hash >> 32) * static_cast<uint64_t>(count) >> 32);
  }
};

struct Buckets {
  static constexpr int64_t kSlots = 120;  // most slots of a bucket

  Buckets() = default;
  // Space for `capacity` rows in a table that may be divided into `cells` cells. With fewer rows than cells, dividing
  // the table is not worthwhile.
  Buckets(int64_t capacity, int64_t cells) {
    const int64_t needed = (capacity + kSlots - 1) / kSlots;
    count = capacity < cells ? std::max<int64_t>(1, needed) : (needed + cells - 1) / cells * cells;
    slots = (capacity + count - 1) / count;
    full = count - (count * slots - capacity);
  }

  // The bucket of a hash. Buckets are equal ranges, which the hash's upper half decides.
  int64_t of(uint64_t hash) const { return Cells::of(hash, count); }
  int64_t slots_of(int64_t bucket) const { return bucket < full ? slots : slots - 1; }

  int64_t count = 1;
  int64_t slots = 0;  // slots of each of the first `full` buckets; the others have one slot less
  int64_t full = 1;
};

}  // namespace extras
