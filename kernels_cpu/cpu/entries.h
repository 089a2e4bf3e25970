// What backward sorts: one entry for each id of a table, so that all entries of a row come to lie side by side.
#pragma once

#include <cstdint>

namespace tessera_cpu {

// A slot is a row of the output: a bag, or a position of a sequence. Slots of a table's features are numbered through.
struct PlainEntry {
  uint32_t row;
  uint32_t slot;
};

// Where ids have weights of their own, where MAX pooling asks for their position, or where their gradient is wanted.
struct FullEntry {
  uint32_t row;
  uint32_t slot;
  uint32_t position;  // in the batch's ids
  float weight;
};

struct Slot {
  const char* gradient;    // of the output row
  const int32_t* winners;  // MAX: per column the place, within the bag, of the id that won; otherwise NULL
  float scale;             // 1 / bag length for MEAN, otherwise 1
  uint32_t begin;          // position of the bag's first id
};

// Sorts n entries by bits [low, high) of their rows, stably. `other` has room for n. The result is where the return
// value points: `entries` or `other`. Equal bits above `high` are the caller's promise.
template <class Entry>
Entry* sort_by_row(Entry* entries, Entry* other, int64_t n, int low, int high);

extern template PlainEntry* sort_by_row(PlainEntry*, PlainEntry*, int64_t, int, int);
extern template FullEntry* sort_by_row(FullEntry*, FullEntry*, int64_t, int, int);

}  // namespace tessera_cpu
