// Records: the form of rows between a file, memory and the inner kernel. A record is a row's weights, then its states.
#pragma once

#include <tessera/sdk/kernel.h>

#include <algorithm>
#include <span>
#include <vector>

namespace extras {

// The parts of a table's record.
class RecordShape {
 public:
  RecordShape(int64_t dim, const tessera::sdk::OptimizerRef& optimizer) : dim_(dim), floats_(dim) {
    for (uint32_t k = 0; k < optimizer.num_states(); ++k) {
      kinds_.push_back(optimizer.state(k).kind);
      widths_.push_back(optimizer.state_width(k, dim));
      starts_.push_back(static_cast<float>(optimizer.state(k).start));
      floats_ += widths_.back();
    }
  }
  int64_t dim() const { return dim_; }
  int64_t floats() const { return floats_; }
  uint64_t bytes() const { return static_cast<uint64_t>(floats_) * sizeof(float); }
  uint32_t states() const { return static_cast<uint32_t>(widths_.size()); }
  int64_t width(uint32_t k) const { return widths_[k]; }
  bool per_element(uint32_t k) const { return kinds_[k] == TSR_STATE_PER_ELEMENT; }
  // Writes the start states after the weights.
  void start_states(float* record) const {
    float* at = record + dim_;
    for (uint32_t k = 0; k < states(); at += widths_[k++]) std::fill_n(at, widths_[k], starts_[k]);
  }

 private:
  int64_t dim_, floats_;
  std::vector<int32_t> kinds_;
  std::vector<int64_t> widths_;
  std::vector<float> starts_;
};

// tsr_rows with its own memory, for calls of the inner kernel.
class RowBuffer {
 public:
  explicit RowBuffer(const RecordShape& shape) : shape_(shape) {}

  // Makes space for `count` rows, all in use.
  tsr_rows& room(size_t count) {
    const auto n = static_cast<int64_t>(count);
    ids_.resize(count);
    weights_.resize(count * static_cast<size_t>(shape_.dim()));
    states_.resize(shape_.states());
    shape1_[0] = shape2_[0] = n;
    shape2_[1] = shape_.dim();
    const DLDevice cpu{kDLCPU, 0};
    const DLDataType f32 = tessera::sdk::dtype_of<float>();
    dl_ids_ = {ids_.data(), cpu, 1, tessera::sdk::dtype_of<int64_t>(), shape1_, nullptr, 0};
    dl_weights_ = {weights_.data(), cpu, 2, f32, shape2_, nullptr, 0};
    dl_states_.resize(states_.size());
    pointers_.resize(states_.size());
    for (uint32_t k = 0; k < shape_.states(); ++k) {
      states_[k].resize(count * static_cast<size_t>(shape_.width(k)));
      const bool by_element = shape_.per_element(k);
      dl_states_[k] = {states_[k].data(), cpu, by_element ? 2 : 1, f32, by_element ? shape2_ : shape1_, nullptr, 0};
      pointers_[k] = &dl_states_[k];
    }
    raw_ = {sizeof(tsr_rows), 0, shape_.states(), 0, n, &dl_ids_, &dl_weights_, pointers_.data(), nullptr};
    return raw_;
  }
  int64_t& id(size_t i) { return ids_[i]; }
  void set(size_t i, const float* record) { move(i, const_cast<float*>(record), true); }
  void get(size_t i, float* record) { move(i, record, false); }

 private:
  void move(size_t i, float* record, bool in) {
    const auto copy = [&](std::vector<float>& values, int64_t width) {
      float* const mine = values.data() + static_cast<int64_t>(i) * width;
      std::copy_n(in ? record : mine, width, in ? mine : record);
      record += width;
    };
    copy(weights_, shape_.dim());
    for (uint32_t k = 0; k < shape_.states(); ++k) copy(states_[k], shape_.width(k));
  }

  const RecordShape& shape_;
  std::vector<int64_t> ids_;
  std::vector<float> weights_;
  std::vector<std::vector<float>> states_;
  int64_t shape1_[1] = {}, shape2_[2] = {};
  DLTensor dl_ids_{}, dl_weights_{};
  std::vector<DLTensor> dl_states_;
  std::vector<const DLTensor*> pointers_;
  tsr_rows raw_{};
};

}  // namespace extras
