#include "row_block.h"

namespace tessera_cpu {

void RowBlock::flush() {
  if (count_ == 0) return;
  const bool narrow = table_.storage() != Storage::kFloat32;
  float* weights[kMostRows];
  float* states[sdk::OptimizerRef::kMaxStates * kMostRows];
  for (int64_t i = 0; i < count_; ++i) {
    weights[i] = narrow ? widened_ + i * table_.dim() : reinterpret_cast<float*>(table_.row(rows_[i]));
    if (narrow) ops_.widen(table_.storage(), table_.row(rows_[i]), table_.dim(), weights[i]);
    for (uint32_t k = 0; k < table_.num_states(); ++k) states[k * count_ + i] = table_.state(k, rows_[i]);
  }
  optimizer_.update_rows(update_, table_.dim(), count_, weights, grads_, states);
  for (int64_t i = 0; narrow && i < count_; ++i) {
    ops_.narrow(table_.storage(), weights[i], table_.dim(), table_.row(rows_[i]));
  }
  count_ = 0;
}

}  // namespace tessera_cpu
