// Backward over a table with few rows: gradients are added to the sums of their rows as they come, where all sums stay
// in the caches, and then the rows are updated. Nothing is sorted.
#pragma once

#include <cstdint>

#include "entries.h"
#include "row_ops.h"

namespace tessera_cpu {

class SumPass {
 public:
  // True if it is worth it for this number of entries of a table of this number of rows.
  static bool serves(int64_t entries, int64_t rows, int64_t dim);
  // The bytes of memory, of zeros, which a pass leaves as it was; for a table, or rows that agree in their bits below
  // `low`.
  static int64_t bytes(int64_t entries, int64_t rows, int64_t dim);
  SumPass(char* zeros, int64_t rows, int64_t dim, int low);

  RowSums* sums() { return &sums_; }
  // Updates the rows that have sums, through the walk's block. `bucket`: their bits below `low`.
  void finish(const Walk& walk, uint32_t bucket);

 private:
  RowSums sums_;
  int64_t dim_;
};

}  // namespace tessera_cpu
