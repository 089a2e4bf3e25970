// Rows that wait for their update, so that the optimizer is called once for several.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/table_store.h"
#include "row_ops.h"

namespace tessera_cpu {

class RowBlock {
 public:
  static constexpr int64_t kMostRows = 32;
  // Floats of scratch that a block for rows of a table needs.
  static int64_t scratch_floats(const TableStore& table) { return 2 * rows_for(table) * table.dim(); }

  RowBlock(const TableStore& table, const sdk::OptimizerRef& optimizer, const tsr_update& update, const RowOps& ops,
           float* scratch);
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;

  // Room for the gradient of the row that is added next.
  float* next_gradient() const { return gradients_ + count_ * dim_; }
  // `gradient` stays where it is until flush().
  [[gnu::always_inline]] void add(int64_t row, const float* gradient) {
    rows_[count_] = table_ + row * row_bytes_;
    grads_[count_] = gradient;
    for (uint32_t k = 0; k < num_states_; ++k) states_[k * capacity_ + count_] = state(k, row);
    if (++count_ == capacity_) flush();
  }
  // Prefetches a row that will be added soon, and its state. Inlined by force: to GCC 12 a function that does nothing
  // but prefetch has no effect, and it drops calls of it.
  // kLines > 0: the row is so many cache lines.
  template <int kLines>
  [[gnu::always_inline]] void prefetch(int64_t row) const {
    prefetch_lines(table_ + row * row_bytes_, kLines > 0 ? 64 * kLines : row_bytes_);
    for (uint32_t k = 0; k < num_states_; ++k) {
      prefetch_lines(reinterpret_cast<const char*>(state(k, row)), state_of_[k].bytes);
    }
  }
  // Updates the rows added since the last flush.
  void flush();

 private:
  static constexpr int64_t kMostStates = sdk::OptimizerRef::kMaxStates;
  struct State {
    float* first;    // of row 0
    int64_t stride;  // floats from row to row
    int64_t bytes;   // of a row
  };

  [[gnu::always_inline]] static void prefetch_lines(const char* memory, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(memory + at, 1, 3);
  }
  // Few enough that what they wait for, and what is prefetched meanwhile, stays in the L1 cache.
  static int64_t rows_for(const TableStore& table) {
    return std::clamp<int64_t>(6144 / (table.row_and_state_bytes() + table.dim() * 4), 4, kMostRows);
  }
  [[gnu::always_inline]] float* state(uint32_t k, int64_t row) const {
    return state_of_[k].first + row * state_of_[k].stride;
  }

  char* const table_;  // row 0
  const int64_t row_bytes_;
  const int64_t dim_;
  const Storage storage_;
  const sdk::OptimizerRef& optimizer_;
  const tsr_update& update_;
  const RowOps& ops_;
  const int64_t capacity_;
  const uint32_t num_states_;
  float* const gradients_;
  float* const widened_;  // where rows are not float32
  State state_of_[kMostStates];
  int64_t count_ = 0;
  char* rows_[kMostRows];
  const float* grads_[kMostRows];
  float* states_[kMostStates * kMostRows];  // state k of row i at k * capacity_ + i
};

}  // namespace tessera_cpu
