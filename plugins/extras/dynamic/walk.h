// The stages of a lookup, a few ids at a time: from ids to index lines, to rows, to sums. Each is compiled for several
// instruction sets.
#pragma once

#include "index.h"

namespace extras {

// The addresses of a table's rows, so that loops keep them in registers.
struct Rows {
  const Line* lines;
  char* heads;
  uint64_t head_stride;  // bytes
  char* weights;
  uint64_t row_bytes;
};

// How a lookup notes the ids that it finds.
enum class Sighting { kNone, kNoted, kCounted };

struct WalkTable {
  // Computes the keys of up to Hashed::kMost ids, and prefetches the lines that guess() reads.
  void (*hash)(const Spread& spread, const Line* lines, const int64_t* ids, int64_t count, Hashed& out);
  // Finds the rows that ids most likely have, kNone for none, and prefetches them. Indexed by lines_index() of a row.
  void (*guess[4])(const Index& index, const Rows& rows, const Hashed& in, int64_t count, uint32_t* out);
  // Notes sightings, by Sighting, of the leading ids that have the guessed rows and are seen for the first time in this
  // step. Returns how many these are.
  int64_t (*settle[3])(const Rows& rows, const int64_t* ids, const uint32_t* guesses, int64_t count, uint32_t step);
  // out[0, dim) = the sum of scales[i] * row rows[i]. If scales is NULL, all are 1.
  void (*sum)(const Rows& from, const uint32_t* rows, const float* scales, int64_t count, int64_t dim, float* out);

  static size_t lines_index(uint64_t row_bytes) {
    return row_bytes == 64 ? 1 : row_bytes == 128 ? 2 : row_bytes == 256 ? 3 : 0;
  }
};

// The table for the current processor (sdk/isa.h).
const WalkTable& choose_walk();

}  // namespace extras
