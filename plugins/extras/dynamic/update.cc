// Backward of dynamic tables: each row's gradient is summed over the batch, and the row is updated once.
#include "dynamic.h"

namespace extras {
namespace {

// A list of rows whose gradients are ready, for one call of the optimizer, which prefetches along the list.
class RowList {
 public:
  RowList(const Table& table, const OptimizerRef& optimizer, const tsr_update& update)
      : table_(table),
        optimizer_(optimizer),
        update_(update),
        near_(near_rows(table, optimizer)),
        num_states_(optimizer.num_states()) {}

  [[gnu::always_inline]] void add(uint32_t row, const float* gradient) {
    if (count_ < near_) table_.prefetch_row(row);
    rows_[count_] = table_.row(row);
    gradients_[count_] = gradient;
    for (uint32_t k = 0; k < num_states_; ++k) states_[k * kMost + count_] = table_.state(k, row);
    if (++count_ == kMost) flush();
  }
  void flush() {
    for (uint32_t k = 1; count_ < kMost && k < num_states_; ++k)
      std::copy_n(states_ + k * kMost, count_, states_ + k * count_);
    if (count_ > 0) optimizer_.update_rows(update_, table_.dim(), count_, rows_, gradients_, states_);
    count_ = 0;
  }

 private:
  static constexpr int64_t kMost = 256;
  // The number of rows of a call that are prefetched here; the optimizer prefetches the others (abi/optimizer.h).
  static int64_t near_rows(const Table& table, const OptimizerRef& optimizer) {
    int64_t floats = table.dim();
    for (uint32_t k = 0; k < optimizer.num_states(); ++k) floats += table.width(k);
    return std::clamp<int64_t>(16384 / (floats * static_cast<int64_t>(sizeof(float))), 1, 128);
  }

  const Table& table_;
  const OptimizerRef& optimizer_;
  const tsr_update& update_;
  const int64_t near_;
  const uint32_t num_states_;
  int64_t count_ = 0;
  float* rows_[kMost];
  const float* gradients_[kMost];
  float* states_[kMost * OptimizerRef::kMaxStates];
};

}  // namespace

void DynamicTables::backward(tsr_context* context, const tsr_backward& args, tsr_stream) {
  const Batch batch = read(*args.lookup);
  Places& places = *reinterpret_cast<Places*>(context);
  note_changes(batch, places);
  for (uint32_t f = 0; f < args.lookup->num_features; ++f) {
    const tsr_lookup_feature& feature = feature_of(*args.lookup, f);
    if (places.evictions[static_cast<size_t>(feature.table)] != tables_[static_cast<size_t>(feature.table)].evictions())
      drop_evicted(batch, feature, places);
  }
  // True if a row that occurs once has the gradient of its bag.
  const bool plain = places.trains && max_gradient_ == 0 && batch.weights == nullptr && args.grad_weights == nullptr;
  for (size_t t = 0; t < tables_.size(); ++t) {
    shares_.clear();
    again_.assign(places.again[t]);
    for (uint32_t f = 0; f < args.lookup->num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(*args.lookup, f);
      if (static_cast<size_t>(feature.table) != t || feature.bags == 0) continue;
      plain ? update_once(batch, feature, places, args) : take_shares(batch, feature, places, args);
    }
    if (!shares_.empty()) update(tables_[t], args);
  }
}

// Updates rows that occur once in the batch immediately, and collects the others' shares.
void DynamicTables::update_once(const Batch& batch, const tsr_lookup_feature& feature, const Places& places,
                                const tsr_backward& args) {
  Table& table = tables_[static_cast<size_t>(feature.table)];
  const int64_t dim = table.dim(), first = batch.begin(feature, 0), last = batch.begin(feature, feature.bags);
  const bool sequence = feature.pooling == TSR_POOLING_NONE, mean = feature.pooling == TSR_POOLING_MEAN;
  const int64_t bags = sequence ? last - first : feature.bags;
  const float* const gradients = data_as<float>(output_of(batch.lookup, feature, *args.grad_output));
  const auto whole = static_cast<float>(args.grad_scale);
  if (mean || whole != 1) scaled_.resize(static_cast<size_t>(bags * dim));
  RowList list(table, optimizer_, *args.update);
  int64_t p = first;
  for (int64_t b = 0; b < bags; ++b) {
    const int64_t end = batch.end_of(feature, b);
    if (p == end) continue;
    const float* const gradient = gradients + batch.output(feature, b);
    const float scale = (mean ? 1 / static_cast<float>(end - p) : 1) * whole;
    const float* ready = gradient;
    if (scale != 1) {
      float* const out = scaled_.data() + b * dim;
      for (int64_t d = 0; d < dim; ++d) out[d] = scale * gradient[d];
      ready = out;
    }
    for (; p < end; ++p) {
      const uint32_t row = places.rows[static_cast<size_t>(p)];
      if (row == kNone) continue;
      if (again_.has(row)) {
        shares_.push_back({gradient, scale, row});
      } else {
        list.add(row, ready);
      }
    }
  }
  list.flush();
}

// Marks all rows of the batch as changed. They are sighted in forward, and get a gradient in backward, perhaps after
// another mark. Rows that were given to other ids meanwhile are marked without need.
void DynamicTables::note_changes(const Batch& batch, const Places& places) {
  for (uint32_t f = 0; f < batch.lookup.num_features; ++f) {
    const tsr_lookup_feature& feature = feature_of(batch.lookup, f);
    Table& table = tables_[static_cast<size_t>(feature.table)];
    if (!table.marked() || feature.bags == 0) continue;
    for (int64_t p = batch.begin(feature, 0); p < batch.begin(feature, feature.bags); ++p) {
      if (places.rows[static_cast<size_t>(p)] != kNone) table.note_change(places.rows[static_cast<size_t>(p)]);
    }
  }
}

// Drops the rows that a later lookup has given to other ids.
void DynamicTables::drop_evicted(const Batch& batch, const tsr_lookup_feature& feature, Places& places) const {
  const Table& table = tables_[static_cast<size_t>(feature.table)];
  for (int64_t p = batch.begin(feature, 0); p < batch.begin(feature, feature.bags); ++p) {
    uint32_t& row = places.rows[static_cast<size_t>(p)];
    if (row != kNone && row != table.shared_row() && table.index().head(row).id != batch.ids[static_cast<size_t>(p)])
      row = kNone;
  }
}

void DynamicTables::take_shares(const Batch& batch, const tsr_lookup_feature& feature, const Places& places,
                                const tsr_backward& args) {
  Table& table = tables_[static_cast<size_t>(feature.table)];
  const float* const gradients = data_as<float>(output_of(batch.lookup, feature, *args.grad_output));
  float* const grad_weights = args.grad_weights == nullptr ? nullptr : data_as<float>(*args.grad_weights);
  const auto whole = static_cast<float>(args.grad_scale);
  const int64_t first = batch.begin(feature, 0);
  for (int64_t b = 0; b < feature.bags; ++b) {
    const int64_t begin = batch.begin(feature, b), end = batch.begin(feature, b + 1);
    const float mean = feature.pooling == TSR_POOLING_MEAN ? 1 / static_cast<float>(end - begin) : 1;
    for (int64_t p = begin; p < end; ++p) {
      const int64_t at = feature.pooling == TSR_POOLING_NONE
                             ? feature.output_offset + (p - first) * feature.output_stride
                             : batch.output(feature, b);
      const uint32_t row = places.rows[static_cast<size_t>(p)];
      const float weight = batch.weights == nullptr ? 1 : batch.weights[p];
      const float scale = mean * weight * (max_gradient_ > 0 ? 1 : whole);  // otherwise clamped() applies `whole`
      if (row != kNone) shares_.push_back({gradients + at, scale, row});
      if (grad_weights == nullptr) continue;
      float sum = 0;
      for (int64_t d = 0; row != kNone && d < table.dim(); ++d) {
        const float g = whole * gradients[at + d];
        sum += (max_gradient_ > 0 ? std::clamp(g, -max_gradient_, max_gradient_) : g) * table.row(row)[d];
      }
      grad_weights[p] = mean * sum;
    }
  }
}

// Writes a share's gradient, scaled and clamped, to a row of clamped_, and returns it.
const float* DynamicTables::clamped(const Share& share, size_t row, int64_t dim, float scale) {
  float* const out = clamped_.data() + static_cast<int64_t>(row) * dim;
  for (int64_t d = 0; d < dim; ++d) out[d] = std::clamp(scale * share.gradient[d], -max_gradient_, max_gradient_);
  return out;
}

// Numbers the rows of the shares in order of appearance, and sorts the shares by that number.
void DynamicTables::group_by_row() {
  const size_t seats = std::bit_ceil(2 * shares_.size());
  seats_.assign(seats, kNone);
  unique_rows_.clear();
  group_of_.resize(shares_.size());
  group_begin_.clear();
  for (size_t i = 0; i < shares_.size(); ++i) {
    const uint32_t row = shares_[i].row;
    size_t seat = size_t{row} * 0x9e3779b1u & (seats - 1);
    while (seats_[seat] != kNone && unique_rows_[seats_[seat]] != row) seat = (seat + 1) & (seats - 1);
    if (seats_[seat] == kNone) {
      seats_[seat] = static_cast<uint32_t>(unique_rows_.size());
      unique_rows_.push_back(row);
      group_begin_.push_back(0);
    }
    group_of_[i] = seats_[seat];
    ++group_begin_[seats_[seat]];
  }
  uint32_t begin = 0;
  for (uint32_t& count : group_begin_) begin += std::exchange(count, begin);
  group_begin_.push_back(begin);
  order_.resize(shares_.size());
  for (size_t i = 0; i < shares_.size(); ++i) order_[group_begin_[group_of_[i]]++] = static_cast<uint32_t>(i);
  for (size_t g = group_begin_.size() - 1; g > 0; --g) group_begin_[g] = group_begin_[g - 1];
  group_begin_[0] = 0;
}

void DynamicTables::update(Table& table, const tsr_backward& args) {
  group_by_row();
  const int64_t dim = table.dim();
  if (max_gradient_ > 0) clamped_.resize(shares_.size() * static_cast<size_t>(dim));
  addresses_.resize(shares_.size());
  scales_.resize(shares_.size());
  for (size_t i = 0; i < shares_.size(); ++i) {
    const Share& share = shares_[order_[i]];
    addresses_[i] = max_gradient_ > 0 ? clamped(share, i, dim, static_cast<float>(args.grad_scale)) : share.gradient;
    scales_[i] = share.scale;
  }
  constexpr size_t kTogether = 64;  // rows per call of the optimizer
  const uint32_t states = optimizer_.num_states();
  sums_.resize(kTogether * static_cast<size_t>(dim));
  weights_of_.resize(kTogether);
  gradients_of_.resize(kTogether);
  states_of_.resize(kTogether * states);
  for (size_t first = 0; first < unique_rows_.size(); first += kTogether) {
    const size_t count = std::min(kTogether, unique_rows_.size() - first);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t row = unique_rows_[first + i];
      weights_of_[i] = table.row(row);
      for (uint32_t k = 0; k < states; ++k) {
        states_of_[k * count + i] = table.state(k, row);
        __builtin_prefetch(states_of_[k * count + i], 1);
      }
      for (int64_t d = 0; d < dim; d += 16) __builtin_prefetch(weights_of_[i] + d, 1);
    }
    for (size_t i = 0; i < count; ++i) {
      const uint32_t begin = group_begin_[first + i], end = group_begin_[first + i + 1];
      if (end - begin == 1 && scales_[begin] == 1) {  // the gradient can be used unchanged
        gradients_of_[i] = addresses_[begin];
        continue;
      }
      float* const sum = sums_.data() + static_cast<int64_t>(i) * dim;
      sum_(addresses_.data() + begin, scales_.data() + begin, end - begin, dim, sum);
      gradients_of_[i] = sum;
    }
    optimizer_.update_rows(*args.update, dim, static_cast<int64_t>(count), weights_of_.data(), gradients_of_.data(),
                           states_of_.data());
  }
}

}  // namespace extras
