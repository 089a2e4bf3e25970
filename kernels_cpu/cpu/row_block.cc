#include "row_block.h"

namespace tessera_cpu {

RowBlock::RowBlock(const TableStore& table, const sdk::OptimizerRef& optimizer, const tsr_update& update,
                   const RowOps& ops, float* scratch)
    : table_(table.row(0)),
      row_bytes_(table.row_bytes()),
      row_and_state_bytes_(table.row_and_state_bytes()),
      dim_(table.dim()),
      storage_(table.storage()),
      rounding_(table.rounding()),
      optimizer_(optimizer),
      update_(update),
      ops_(ops),
      capacity_(rows_for(table)),
      num_states_(table.num_states()),
      gradients_(scratch),
      widened_(scratch + capacity_ * dim_) {
  for (uint32_t k = 0; k < num_states_; ++k) {
    state_of_[k] = {table.state(k, 0), table.state_stride(k), table.state_width(k) * 4};
  }
}

void RowBlock::update(int64_t count, int64_t capacity, float* const* weights, const float* const* grads,
                      float** states) const {
  if (count == 0) return;
  if (count < capacity) {  // the optimizer takes states without gaps
    for (uint32_t k = 1; k < num_states_; ++k) std::copy_n(states + k * capacity, count, states + k * count);
  }
  optimizer_.update_rows(update_, dim_, count, weights, grads, states);
}

void RowBlock::flush() {
  if (count_ == 0) return;
  const bool narrow = storage_ != Storage::kFloat32;
  float* weights[kMostRows];
  for (int64_t i = 0; i < count_; ++i) {
    weights[i] = narrow ? widened_ + i * dim_ : reinterpret_cast<float*>(rows_[i]);
    if (narrow) ops_.widen(storage_, rows_[i], dim_, weights[i]);
  }
  update(count_, capacity_, weights, grads_, states_);
  for (int64_t i = 0; narrow && i < count_; ++i) {
    if (rounding_.stochastic) {
      store_at_random(rounding_, storage_ == Storage::kBFloat16, (rows_[i] - table_) / row_bytes_, update_.step,
                      weights[i], dim_, reinterpret_cast<uint16_t*>(rows_[i]));
    } else {
      ops_.narrow(storage_, weights[i], dim_, rows_[i]);
    }
  }
  count_ = 0;
}

}  // namespace tessera_cpu
