// Row moves in host memory.
#pragma once

#include <vector>

#include "distributed/row_moves.h"
#include "distributed/workers.h"

namespace tessera {

// See row_moves.h. Packed and spread may be one tensor if no element is both read and written. If there is enough to
// do, several threads share the work: combine divides targets into parts of some rows, split divides runs.
class HostRowMoves {
 public:
  explicit HostRowMoves(Workers workers = {}) : workers_(workers) {}

  void combine(const RowMoves& moves, const float* packed, float* spread);
  void split(const RowMoves& moves, float* packed, const float* spread);
  // Combines one target from the rows of its only run.
  void combine_target(const RowMoves& moves, const RowTarget& target, const float* rows, float* spread) const;

 private:
  struct Part {
    const RowTarget* target;
    const RowRun* run;    // null: all runs of the target
    int64_t first, last;  // rows of the target or, if `run` is set, of the run
  };
  Workers workers_;
  std::vector<Part> parts_;  // scratch
};

}  // namespace tessera
