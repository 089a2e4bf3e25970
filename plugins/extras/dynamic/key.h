// An id, and the place where a table searches for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "buckets.h"

namespace extras {

// An id with values derived from it.
struct Key {
  int64_t id;
  uint64_t hash;
  int64_t bucket;
};

// How ids are spread over a table: buckets, lines within them, and a tag of 16 bits.
struct Spread {
  Buckets buckets;
  bool all_ids = false;  // every id below a bound has a slot of its own, and buckets are equal ranges of ids
  int64_t lines = 1;     // lines per bucket

  static constexpr int64_t kIdsShift = 6;  // log2 of a bucket's ids if every id has a slot

  Key key(int64_t id) const {
    const uint64_t hash = scrambled(id);
    return {id, hash, all_ids ? id >> kIdsShift : buckets.of(hash)};
  }
  // The line of its bucket in which the search for an id begins.
  int64_t home(uint64_t hash) const {
    return static_cast<int64_t>((hash >> 16 & 0xffff) * static_cast<uint64_t>(lines) >> 16);
  }
  // 0 marks an empty slot.
  static uint16_t tag(uint64_t hash) { return std::max<uint16_t>(1, static_cast<uint16_t>(hash)); }
};

// The keys of several ids: for each, the first line of its bucket, its home among these lines, and its tag.
struct Hashed {
  static constexpr int64_t kMost = 8;
  uint32_t first[kMost], home[kMost], tag[kMost];
};

}  // namespace extras
