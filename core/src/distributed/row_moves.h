// Rows between a packed form and the places where they belong, said once: what the host's loops (host_row_moves.h) and
// a device's lists (device_row_lists.h) are made of. Made once a batch; combine and split run the same moves.
//
// Packed: rows of a *run*, one behind the other, such as those of a row route on the wire. Spread: rows of a *target*,
// such as a table feature of the output. A run has rows for some of its target's rows, which are called bags here, and
// for some columns.
//
//   combine: spread rows become what their runs have for them, times their scale; 0 where no run has any
//   split:   packed rows become what their target has in their columns, times its row's scale
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// The rule if several runs have something for the same element.
enum class RowsMeet {
  kFirstWrites,  // of runs of the same columns the first one that has a row for a bag writes it, later ones add
  kAllAdd,       // columns of runs overlap: the target becomes 0, and all runs add
  kNever,        // all write
};

// Row b of [0, rows) begins at element begin + b * stride of the spread tensor.
struct RowTarget {
  int64_t rows = 0, cols = 0;
  int64_t begin = 0, stride = 0;
  int64_t scale = -1;  // of row 0 in RowMoves::scales; -1: all 1
  RowsMeet meet = RowsMeet::kFirstWrites;
  // Runs may name a bag more than once and in any order; otherwise their bags ascend. With kAllAdd.
  bool repeats = false;
  int first_run = 0, num_runs = 0;  // set by RowMoves
};

// Row k of [0, rows) begins at element begin + k * stride of the packed tensor; it is for columns [col, col + cols) of
// row bags[k] of the target. With an index it begins at begin + index[k] * stride, and runs with equal `begin` share
// packed rows, also of other targets: split() makes these the sums over all their places, run by run. Such rows are
// numbered by their first place, and `fresh` is the number of the first one that no earlier run has.
struct RowRun {
  int64_t begin = 0, stride = 0;
  const int32_t* bags = nullptr;  // lives as long as the moves
  int64_t rows = 0;
  int64_t col = 0, cols = 0;
  const int32_t* index = nullptr;  // as `bags`; only in host memory
  int32_t fresh = 0;
  bool is_local = false;  // local rows: they are, or their gradients are read, in the target; `begin` means nothing
};

struct RowMoves {
  std::vector<RowTarget> targets;
  std::vector<RowRun> runs;       // by target; those of the same columns one behind the other
  std::vector<int32_t> own_bags;  // lists that nobody else keeps
  std::span<const float> scales;

  void clear() {
    targets.clear();
    runs.clear();
    scales = {};
  }
  // Runs that are added next are the target's.
  void add(const RowTarget& target) {
    targets.push_back(target);
    targets.back().first_run = static_cast<int>(runs.size());
  }
  RowRun& add_run() {
    ++targets.back().num_runs;
    return runs.emplace_back();
  }
  void add(const RowRun& run) { add_run() = run; }
  std::span<const RowRun> of(const RowTarget& target) const {
    return std::span(runs).subspan(static_cast<size_t>(target.first_run), static_cast<size_t>(target.num_runs));
  }
};

}  // namespace tessera
