// The steps of a lookup, some ids at a time: from ids to lines of the index, to rows, to sums, each for the instruction
// set at hand.
#pragma once

#include "index.h"

namespace extras {

// The addresses of a table's rows, for loops to have in registers.
struct Rows {
  const Line* lines;
  char* heads;
  uint64_t head_stride;  // bytes
  char* weights;
  uint64_t row_bytes;
};

// The notes of a lookup about ids that it finds.
enum class Sighting { kNone, kNoted, kCounted };

struct WalkTable {
  // Up to Hashed::kMost ids; prefetches the lines that guess() looks at.
  void (*hash)(const Spread& spread, const Line* lines, const int64_t* ids, int64_t count, Hashed& out);
  // Rows that ids most likely have, kNone: none; prefetches them. By lines_index() of a row.
  void (*guess[4])(const Index& index, const Rows& rows, const Hashed& in, int64_t count, uint32_t* out);
  // Notes sightings, by Sighting, of the first ids that have the rows guessed and are seen for the first time in this
  // step; returns how many these are.
  int64_t (*settle[3])(const Rows& rows, const int64_t* ids, const uint32_t* guesses, int64_t count, uint32_t step);
  // out[0, dim) = the sum of scales[i] * row rows[i]; scales NULL: all 1.
  void (*sum)(const Rows& from, const uint32_t* rows, const float* scales, int64_t count, int64_t dim, float* out);

  static size_t lines_index(uint64_t row_bytes) {
    return row_bytes == 64 ? 1 : row_bytes == 128 ? 2 : row_bytes == 256 ? 3 : 0;
  }
};

// For the processor at hand (sdk/isa.h).
const WalkTable& choose_walk();

}  // namespace extras
