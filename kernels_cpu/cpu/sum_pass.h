// Backward over a table with few rows: adds gradients to the sums of their rows in order of arrival, while all sums
// stay in the caches, then updates the rows. Nothing is sorted.
#pragma once

#include <cstdint>

#include "entries.h"
#include "row_ops.h"

namespace tessera_cpu {

class SumPass {
 public:
  // True if the pass is worthwhile for this many entries of a table with this many rows.
  static bool serves(int64_t entries, int64_t rows, int64_t dim);
  // The bytes of memory for a table, or for a bucket of it. The memory must be zeroed, and a pass leaves it zeroed.
  static int64_t bytes(int64_t entries, int64_t rows, int64_t dim);
  SumPass(char* zeros, int64_t rows, int64_t dim, int low);

  RowSums* sums() { return &sums_; }
  // Updates the rows that have sums, through the walk's block. `bucket` has their bits below `low`.
  void finish(const Walk& walk, uint32_t bucket);

 private:
  RowSums sums_;
  int64_t dim_;
};

}  // namespace tessera_cpu
