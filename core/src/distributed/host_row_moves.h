// Row moves in host memory.
#pragma once

#include <vector>

#include "distributed/row_moves.h"
#include "distributed/workers.h"

namespace tessera {

// See row_moves.h. Packed and spread may be one tensor where no element is both read and written. Targets are combined
// in parts of some rows each, runs are split in such parts, by several threads where there is enough to do.
class HostRowMoves {
 public:
  explicit HostRowMoves(Workers workers = {}) : workers_(workers) {}

  void combine(const RowMoves& moves, const float* packed, float* spread);
  void split(const RowMoves& moves, float* packed, const float* spread);
  // One of the moves' targets, from the rows of its only run.
  void combine_target(const RowMoves& moves, const RowTarget& target, const float* rows, float* spread) const;

 private:
  struct Part {
    const RowTarget* target;
    const RowRun* run;    // null: all of the target's
    int64_t first, last;  // of the target's rows, or of the run's
  };
  Workers workers_;
  std::vector<Part> parts_;  // scratch
};

}  // namespace tessera
