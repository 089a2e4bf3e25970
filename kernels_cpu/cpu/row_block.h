// Collects rows for their update, so that the optimizer is called once for several.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/table_store.h"
#include "row_ops.h"

namespace tessera_cpu {

class RowBlock {
 public:
  static constexpr int64_t kMostRows = 32;
  // Floats of scratch that a block needs for rows of a table.
  static int64_t scratch_floats(const TableStore& table) { return 2 * rows_for(table) * table.dim(); }

  RowBlock(const TableStore& table, const sdk::OptimizerRef& optimizer, const tsr_update& update, const RowOps& ops,
           float* scratch);
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;

  // The address for the gradient of the row that is added next, if it must be computed.
  float* next_gradient() const { return gradients_ + count_ * dim_; }
  // `gradient` must not move until flush(). Returns true if it flushed.
  [[gnu::always_inline]] bool add(int64_t row, const float* gradient) {
    rows_[count_] = address<0>(row);
    grads_[count_] = gradient;
    for (uint32_t k = 0; k < num_states_; ++k) states_[k * capacity_ + count_] = state(k, row);
    if (++count_ < capacity_) return false;
    flush();
    return true;
  }
  // Prefetches a row that will be added soon, and its state. Inlining is forced, because GCC 12 drops calls of
  // functions that only prefetch. kLines > 0 is the number of cache lines per row; kRowState means one_row_state().
  template <int kLines, bool kRowState = false>
  [[gnu::always_inline]] void prefetch(int64_t row) const {
    prefetch_lines(address<kLines>(row), kLines > 0 ? int64_t{64} * kLines : row_bytes_);
    if constexpr (kRowState) {
      __builtin_prefetch(state(0, row), 1, 3);
    } else {
      for (uint32_t k = 0; k < num_states_; ++k) {
        prefetch_lines(reinterpret_cast<const char*>(state(k, row)), state_of_[k].bytes);
      }
    }
  }
  // Updates the rows added since the last flush.
  void flush();

  // The address of a row, and of its states, for lists of rows that are kept elsewhere.
  template <int kLines>
  [[gnu::always_inline]] char* address(int64_t row) const {
    return table_ + row * (kLines > 0 ? int64_t{64} * kLines : row_bytes_);
  }
  [[gnu::always_inline]] float* state(uint32_t k, int64_t row) const {
    return state_of_[k].first + row * state_of_[k].stride;
  }
  uint32_t num_states() const { return num_states_; }
  bool one_row_state() const { return num_states_ == 1 && state_of_[0].bytes == 4; }
  int64_t row_and_state_bytes() const { return row_and_state_bytes_; }
  // Updates `count` float32 rows; state k of row i is states[k * capacity + i]. The states array may be rearranged.
  void update(int64_t count, int64_t capacity, float* const* weights, const float* const* grads, float** states) const;

 private:
  static constexpr int64_t kMostStates = sdk::OptimizerRef::kMaxStates;
  struct State {
    float* first;    // address of row 0
    int64_t stride;  // floats from row to row
    int64_t bytes;   // per row
  };

  [[gnu::always_inline]] static void prefetch_lines(const char* memory, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(memory + at, 1, 3);
  }
  // The number of rows of a block, few enough that they and prefetched data stay in the L1 cache.
  static int64_t rows_for(const TableStore& table) {
    return std::clamp<int64_t>(6144 / (table.row_and_state_bytes() + table.dim() * 4), 4, kMostRows);
  }

  char* const table_;  // row 0
  const int64_t row_bytes_;
  const int64_t row_and_state_bytes_;
  const int64_t dim_;
  const Storage storage_;
  const Rounding& rounding_;
  const sdk::OptimizerRef& optimizer_;
  const tsr_update& update_;
  const RowOps& ops_;
  const int64_t capacity_;
  const uint32_t num_states_;
  float* const gradients_;
  float* const widened_;  // the rows as float32, used if they are of another type
  State state_of_[kMostStates];
  int64_t count_ = 0;
  char* rows_[kMostRows];
  const float* grads_[kMostRows];
  float* states_[kMostStates * kMostRows];  // state k of row i at k * capacity_ + i
};

}  // namespace tessera_cpu
