// Describes how rows move between a packed form and the places where they belong. The host's loops (host_row_moves.h)
// and a device's lists (device_row_lists.h) are both made from it. It is made once for a batch; combine and split use
// the same moves.
//
// Packed: the rows of a *run* are contiguous, such as the rows of a row route on the wire. Spread: rows of a *target*,
// such as a table feature of the output. A run has rows for some of its target's rows, which are called bags here, and
// for some columns.
//
//   combine: each spread row becomes the sum of its runs' rows for it, times their scale; 0 if there are none
//   split:   each packed row becomes the columns of its target's row, times that row's scale
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// The rule if several runs have rows for the same element.
enum class RowsMeet {
  kFirstWrites,  // among runs of the same columns, the first one with a row for a bag writes it, later ones add
  kAllAdd,       // columns of runs may overlap: the target becomes 0, and all runs add
  kNever,        // this does not happen: every run writes
};

// Row b of [0, rows) begins at element begin + b * stride of the spread tensor.
struct RowTarget {
  int64_t rows = 0, cols = 0;
  int64_t begin = 0, stride = 0;
  int64_t scale = -1;  // index of row 0 in RowMoves::scales; -1: all scales are 1
  RowsMeet meet = RowsMeet::kFirstWrites;
  // True: runs may name a bag more than once and in any order, and `meet` must be kAllAdd. False: a run's bags ascend.
  bool repeats = false;
  int first_run = 0, num_runs = 0;  // set by RowMoves
};

// Row k of [0, rows) begins at element begin + k * stride of the packed tensor. It is for columns [col, col + cols) of
// row bags[k] of the target. With an index it begins at begin + index[k] * stride, and runs with equal `begin`, even of
// other targets, share packed rows. split() sets a shared row to the sum over all its places, run by run. Shared rows
// are numbered in the order of their first places, and `fresh` is the number of the first row that no earlier run has.
struct RowRun {
  int64_t begin = 0, stride = 0;
  const int32_t* bags = nullptr;  // must live as long as the moves
  int64_t rows = 0;
  int64_t col = 0, cols = 0;
  const int32_t* index = nullptr;  // as `bags`; only in host memory
  int32_t fresh = 0;
  // Local rows: the rows, or their gradients, are already in the target, and `begin` is not used.
  bool is_local = false;
};

struct RowMoves {
  std::vector<RowTarget> targets;
  std::vector<RowRun> runs;       // by target; runs of the same columns are adjacent
  std::vector<int32_t> own_bags;  // storage for bags of runs that have no other owner
  std::span<const float> scales;

  void clear() {
    targets.clear();
    runs.clear();
    scales = {};
  }
  // Adds a target. The runs that are added next belong to it.
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
