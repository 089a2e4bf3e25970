#include "distributed/device_row_lists.h"

#include <cstring>

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Calls body(row of the target in spread, its scale, runs, b) for all rows of all targets, in host memory.
template <class Body>
void for_each_row(const tsr_row_moves& m, const Body& body) {
  for (uint32_t t = 0; t < m.num_targets; ++t) {
    const tsr_row_target& target = m.targets[t];
    for (int64_t b = 0; b < target.rows; ++b) {
      const std::span<const tsr_row_run> runs(m.runs + target.first_run, static_cast<size_t>(target.num_runs));
      body(target, m.spread + target.begin + b * target.stride, target.scale < 0 ? 1.0f : m.scales[target.scale + b],
           runs, b);
    }
  }
}

}  // namespace

DeviceRowLists::DeviceRowLists(const DeviceStreamPtr& stream) : stream_(stream) {
  host_.pinned(stream);
  device_.on_device(stream);
}

void DeviceRowLists::clear() {
  targets_.clear();
  runs_.clear();
  index_.clear();
  most_elements_ = 0;
}

void DeviceRowLists::list(const RowMoves& moves) {
  clear();
  for (const RowTarget& target : moves.targets) {
    TESSERA_CHECK(!target.repeats, "a packed row goes to one row of its target");
    add_target(target.rows, target.cols, target.begin, target.stride, target.scale);
    const RowRun* before = nullptr;
    int64_t index = 0;
    for (const RowRun& run : moves.of(target)) {
      TESSERA_CHECK(!run.is_local && run.stride == run.cols, "rows of a device all move, and are packed");
      // Parts of a row's columns have the same bags.
      if (!before || run.bags != before->bags || run.rows != before->rows) {
        index = add_index(target.rows);
        int32_t* row_of = index_.data() + index;
        for (int64_t k = 0; k < run.rows; ++k) row_of[run.bags[k]] = static_cast<int32_t>(k);
      }
      add_run(run.begin, index, run.col, run.cols);
      before = &run;
    }
  }
}

void DeviceRowLists::add_target(int64_t rows, int64_t cols, int64_t begin, int64_t stride, int64_t scale) {
  targets_.push_back({rows, cols, begin, stride, scale, static_cast<int32_t>(runs_.size()), 0});
  most_elements_ = std::max(most_elements_, rows * cols);
}

void DeviceRowLists::add_run(int64_t begin, int64_t index, int64_t col, int64_t cols) {
  runs_.push_back({begin, index, static_cast<int32_t>(col), static_cast<int32_t>(cols)});
  ++targets_.back().num_runs;
}

int64_t DeviceRowLists::add_index(int64_t rows) {
  const auto begin = static_cast<int64_t>(index_.size());
  index_.resize(static_cast<size_t>(begin + rows), -1);
  return begin;
}

void DeviceRowLists::upload(std::span<const float> scales) {
  if (targets_.empty()) return;
  const auto bytes = [](const auto& list) { return static_cast<int64_t>(list.size() * sizeof(list[0])); };
  runs_at_ = aligned(bytes(targets_));
  index_at_ = runs_at_ + aligned(bytes(runs_));
  scales_at_ = index_at_ + aligned(bytes(index_));
  const int64_t total = scales_at_ + aligned(bytes(scales));
  uint8_t* to = host_.ensure(total).data<uint8_t>();
  device_.ensure(total);
  const auto put = [&](int64_t at, const auto& list) {
    if (!list.empty()) std::memcpy(to + at, list.data(), list.size() * sizeof(list[0]));
  };
  put(0, targets_);
  put(runs_at_, runs_);
  put(index_at_, index_);
  put(scales_at_, scales);
  stream_->copy(host_.tensor().first({total}), device_.tensor().first({total}));
}

tsr_row_moves DeviceRowLists::lists(const char* at) const {
  tsr_row_moves m{};
  m.struct_size = sizeof(m);
  m.device_index = stream_->device().index;
  m.num_targets = static_cast<uint32_t>(targets_.size());
  m.num_runs = static_cast<uint32_t>(runs_.size());
  m.most_elements = most_elements_;
  m.targets = reinterpret_cast<const tsr_row_target*>(at);
  m.runs = reinterpret_cast<const tsr_row_run*>(at + runs_at_);
  m.index = reinterpret_cast<const int32_t*>(at + index_at_);
  m.scales = reinterpret_cast<const float*>(at + scales_at_);
  return m;
}

// Moves rows for devices without row moves: the rows are copied to the host and back, and the host waits.
template <class Move>
void DeviceRowLists::on_host(const Tensor& packed, const Tensor& spread, bool to_spread, const Move& move) const {
  const Tensor p = stream_->to_host(packed), s = stream_->to_host(spread);
  tsr_row_moves m = lists(static_cast<const char*>(host_.tensor().raw()));
  m.packed = p.data<float>();
  m.spread = s.data<float>();
  for_each_row(m, [&](const tsr_row_target& target, float* row, float scale, auto runs, int64_t b) {
    if (to_spread) std::fill_n(row, target.cols, 0.0f);
    for (const tsr_row_run& run : runs) {
      const int64_t i = m.index[run.index + b];
      if (i >= 0) move(m.packed + run.begin + i * run.cols, row + run.col, scale, run.cols);
    }
  });
  stream_->copy(to_spread ? s : p, to_spread ? spread : packed);
  stream_->synchronize();
}

void DeviceRowLists::combine(const Tensor& packed, const Tensor& spread) const {
  if (targets_.empty()) return;
  if (!stream_->moves_rows()) {
    return on_host(packed, spread, true, [](const float* from, float* to, float scale, int32_t n) {
      for (int32_t c = 0; c < n; ++c) to[c] += scale * from[c];
    });
  }
  tsr_row_moves m = lists(static_cast<const char*>(device_.tensor().raw()));
  m.packed = static_cast<float*>(packed.raw());
  m.spread = static_cast<float*>(spread.raw());
  stream_->combine_rows(m);
}

void DeviceRowLists::split(const Tensor& packed, const Tensor& spread) const {
  if (targets_.empty()) return;
  if (!stream_->moves_rows()) {
    return on_host(packed, spread, false, [](float* to, const float* from, float scale, int32_t n) {
      for (int32_t c = 0; c < n; ++c) to[c] = scale * from[c];
    });
  }
  tsr_row_moves m = lists(static_cast<const char*>(device_.tensor().raw()));
  m.packed = static_cast<float*>(packed.raw());
  m.spread = static_cast<float*>(spread.raw());
  stream_->split_rows(m);
}

}  // namespace tessera
