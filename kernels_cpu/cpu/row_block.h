// Rows that wait for their update, so that the optimizer is called once for several.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/table_store.h"
#include "row_ops.h"

namespace tessera_cpu {

class RowBlock {
 public:
  static constexpr int64_t kMostRows = 16;
  // Floats of scratch that a block for rows of `dim` columns needs.
  static int64_t scratch_floats(int64_t dim) { return 2 * rows_for(dim) * dim; }

  RowBlock(const TableStore& table, const sdk::OptimizerRef& optimizer, const tsr_update& update, const RowOps& ops,
           float* scratch)
      : table_(table),
        optimizer_(optimizer),
        update_(update),
        ops_(ops),
        capacity_(rows_for(table.dim())),
        gradients_(scratch),
        widened_(scratch + capacity_ * table.dim()) {}
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;

  // Room for the gradient of the row that is added next.
  float* next_gradient() const { return gradients_ + count_ * table_.dim(); }
  // `gradient` stays where it is until flush().
  void add(int64_t row, const float* gradient) {
    rows_[count_] = row;
    grads_[count_] = gradient;
    if (++count_ == capacity_) flush();
  }
  // Prefetches a row that will be added soon, and its state. Inlined by force: to GCC 12 a function that does nothing
  // but prefetch has no effect, and it drops calls of it.
  [[gnu::always_inline]] void prefetch(int64_t row) const {
    prefetch_lines(table_.row(row), table_.row_bytes());
    for (uint32_t k = 0; k < table_.num_states(); ++k) {
      prefetch_lines(reinterpret_cast<const char*>(table_.state(k, row)), table_.state_width(k) * 4);
    }
  }
  // Updates the rows added since the last flush.
  void flush();

 private:
  [[gnu::always_inline]] static void prefetch_lines(const char* memory, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(memory + at, 1, 3);
  }
  static int64_t rows_for(int64_t dim) { return std::clamp<int64_t>(4096 / dim, 1, kMostRows); }

  const TableStore& table_;
  const sdk::OptimizerRef& optimizer_;
  const tsr_update& update_;
  const RowOps& ops_;
  const int64_t capacity_;
  float* const gradients_;
  float* const widened_;  // where rows are not float32
  int64_t count_ = 0;
  int64_t rows_[kMostRows];
  const float* grads_[kMostRows];
};

}  // namespace tessera_cpu
