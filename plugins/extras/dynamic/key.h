// An id, and where a table looks for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "buckets.h"

namespace extras {

// An id with what follows from it.
struct Key {
  int64_t id;
  uint64_t hash;
  int64_t bucket;
};

// How ids spread over a table: buckets, in each of them lines, and a tag of 16 bits.
struct Spread {
  Buckets buckets;
  bool all_ids = false;  // ids are below a bound, and each has room: equal shares of the ids
  int64_t lines = 1;     // of a bucket

  static constexpr int64_t kIdsShift = 6;  // of a bucket where each id has room

  Key key(int64_t id) const {
    const uint64_t hash = scrambled(id);
    return {id, hash, all_ids ? id >> kIdsShift : buckets.of(hash)};
  }
  // The line of its bucket in which an id is looked for first.
  int64_t home(uint64_t hash) const {
    return static_cast<int64_t>((hash >> 16 & 0xffff) * static_cast<uint64_t>(lines) >> 16);
  }
  // 0 is an empty slot's.
  static uint16_t tag(uint64_t hash) { return std::max<uint16_t>(1, static_cast<uint16_t>(hash)); }
};

// An id's keys: the first line of its bucket, its home among these, and its tag.
struct Hashed {
  static constexpr int64_t kMost = 8;
  uint32_t first[kMost], home[kMost], tag[kMost];
};

}  // namespace extras
