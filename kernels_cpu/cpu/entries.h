// The entries that backward sorts, one per id of a table, so that all entries of a row become neighbours.
#pragma once

#include <cstdint>

namespace tessera_cpu {

// An entry without weights. An output row belongs to a bag, or to a position of a sequence; the output rows of a
// table's features are numbered consecutively.
struct PlainEntry {
  uint32_t row;
  uint32_t output_row;
};

// An entry with its position, for weighted ids, for MAX pooling, and if the gradient of the weights is wanted.
struct FullEntry {
  uint32_t row;
  uint32_t output_row;
  uint32_t position;  // among the batch's ids
  float weight;
};

struct OutputRow {
  const char* gradient;    // address of the output row's gradient
  const int32_t* winners;  // for MAX, per column, the position in the bag of the id with the maximum; otherwise NULL
  float scale;             // 1 / bag length for MEAN, otherwise 1
  uint32_t begin;          // position of the bag's first id
};

// Bags of one feature, as positions among the batch's ids. A sequence is bags of one id.
struct IdRun {
  const void* ids;  // ids of the batch
  bool wide_ids;
  const void* offsets;  // bag b has positions [offsets[b], offsets[b + 1]); NULL: [begin + b, begin + b + 1)
  bool wide_offsets;
  int64_t begin;
  int64_t end;
  int64_t bags;
  int64_t first_output_row;
  bool scaled;  // output rows may have scales other than 1

  int64_t first(int64_t bag) const {
    if (offsets == nullptr) return begin + bag;
    return wide_offsets ? static_cast<const int64_t*>(offsets)[bag] : static_cast<const int32_t*>(offsets)[bag];
  }
};

// The sums of gradients of a table with few rows, for which nothing has to be sorted. All rows have equal bits below
// `low`. Sums are in the order in which their rows first occur.
struct RowSums {
  uint32_t* number_of;  // by row >> low: the number of its sum, from 1; 0 if it has none yet
  uint32_t* rows;       // row >> low of each sum, with space for one more
  float* values;        // [sums, dim], 0 before a row occurs
  uint32_t count;       // number of sums
  int low;
};

// Finds the rows that occur once, among entries whose rows have equal bits below `low`. It has two bits per place,
// "seen" and "again". Rows that share a place count as occurring again, so once() is sometimes wrongly false, but never
// wrongly true.
class OnceMap {
 public:
  // The bytes for n entries of rows below 2^high.
  static int64_t bytes(int64_t n, int low, int high) { return places(n, low, high) / kPlacesPerByte; }
  OnceMap(char* memory, int64_t n, int low, int high);

  void mark(uint32_t row) {
    uint64_t& word = words_[word_of(row)];
    const int shift = shift_of(row);
    const uint64_t seen = (word >> shift) & 1;
    word |= (1 | seen << 1) << shift;
    places_taken_ += static_cast<int64_t>(seen ^ 1);
  }
  bool once(uint32_t row) const { return ((words_[word_of(row)] >> shift_of(row)) & 2) == 0; }
  int64_t places_taken() const { return places_taken_; }
  int low() const { return low_; }

 private:
  static constexpr int64_t kPlacesPerByte = 4;
  static int64_t places(int64_t n, int low, int high);
  uint32_t word_of(uint32_t row) const { return ((row >> low_) & mask_) >> 5; }
  int shift_of(uint32_t row) const { return static_cast<int>((row >> low_) & 31) * 2; }

  uint64_t* words_;
  uint32_t mask_;
  int low_;
  int64_t places_taken_ = 0;
};

// Sorts n entries stably by bits [low, high) of their rows; the bits from `high` on must be equal. `other` has space
// for n entries. Returns a pointer to the result, which is `entries` or `other`.
template <class Entry>
Entry* sort_by_row(Entry* entries, Entry* other, int64_t n, int low, int high);

extern template PlainEntry* sort_by_row(PlainEntry*, PlainEntry*, int64_t, int, int);
extern template FullEntry* sort_by_row(FullEntry*, FullEntry*, int64_t, int, int);

}  // namespace tessera_cpu
