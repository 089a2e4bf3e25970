#include "data/examples.h"

#include <algorithm>
#include <limits>

namespace tessera::data {

Examples::Examples(size_t num_dense, std::vector<DataColumn> columns, LabelForm form)
    : num_dense_(num_dense), form_(form), columns_(std::move(columns)) {
  for (const DataColumn& column : columns_) {
    keys_.push_back(column.name);
    wide_ = wide_ || column.rows > std::numeric_limits<int32_t>::max();
    weighted_ = weighted_ || column.weighted;
  }
}

void Examples::begin_sample(float label) {
  if (samples_ >= std::numeric_limits<uint32_t>::max()) {
    fail(Code::kResourceExhausted, "a data set of more than 2^32 - 1 samples does not fit: set data.limit");
  }
  labels_.push_back(label);
  ++samples_;
  column_ = 0;
  bag_length_ = 0;
}

bool Examples::add_ids(std::span<const int64_t> ids, const float* weights) {
  bool known = true, narrow = true;
  const int64_t rows = columns_[column_].rows;
  for (const int64_t id : ids) {
    known = known && id >= 0 && id < rows;
    narrow = narrow && id == static_cast<int32_t>(id);
  }
  if (!narrow && !wide_) widen();
  if (wide_)
    ids64_.insert(ids64_.end(), ids.begin(), ids.end());
  else
    ids32_.insert(ids32_.end(), ids.begin(), ids.end());
  if (weighted_ && weights != nullptr) weights_.insert(weights_.end(), weights, weights + ids.size());
  if (weighted_ && weights == nullptr) weights_.insert(weights_.end(), ids.size(), 1.0f);
  bag_length_ += static_cast<int32_t>(ids.size());
  return known;
}

void Examples::end_bag() {
  if (bag_length_ != 1 && single_) leave_single();
  if (!single_) lengths_.push_back(bag_length_);
  bag_length_ = 0;
  ++column_;
}

void Examples::end_sample() {
  TESSERA_CHECK(column_ == columns_.size() && dense_.size() == samples_ * num_dense_ &&
                    labels_.size() == samples_ * form_.values(),
                "a sample is not complete");
  if (!single_) starts_.push_back(static_cast<int64_t>(wide_ ? ids64_.size() : ids32_.size()));
}

// All samples before this one, and this one's columns before the current one, had one id each.
void Examples::leave_single() {
  single_ = false;
  const size_t before = samples_ - 1;
  lengths_.assign(before * columns_.size() + column_, 1);
  starts_.resize(before + 1);
  for (size_t s = 0; s <= before; ++s) starts_[s] = static_cast<int64_t>(s * columns_.size());
}

void Examples::widen() {
  wide_ = true;
  ids64_.assign(ids32_.begin(), ids32_.end());
  ids32_ = {};
}

Examples Examples::split_off(int64_t first) {
  TESSERA_CHECK(first >= 0 && first <= size());
  const auto move_tail = [](auto& from, int64_t begin, auto& to) {
    if (from.empty()) return;
    to.assign(from.begin() + begin, from.end());
    from.resize(static_cast<size_t>(begin));
  };
  Examples tail(num_dense_, columns_, form_);
  tail.samples_ = samples_ - static_cast<size_t>(first);
  samples_ = static_cast<size_t>(first);
  tail.single_ = single_;
  tail.wide_ = wide_;
  const int64_t id = first_id(first);
  if (wide_)
    move_tail(ids64_, id, tail.ids64_);
  else
    move_tail(ids32_, id, tail.ids32_);
  move_tail(weights_, id, tail.weights_);
  move_tail(labels_, first * static_cast<int64_t>(form_.values()), tail.labels_);
  move_tail(dense_, first * num_dense(), tail.dense_);
  if (!single_) {
    move_tail(lengths_, first * num_columns(), tail.lengths_);
    tail.starts_.assign(starts_.begin() + first, starts_.end());
    for (int64_t& start : tail.starts_) start -= id;
    starts_.resize(static_cast<size_t>(first) + 1);
  }
  return tail;
}

void Examples::reserve(int64_t samples) {
  if (samples <= size() || labels_.empty()) return;
  const auto grown = [&](size_t now) {
    return static_cast<size_t>(static_cast<double>(now) * static_cast<double>(samples) / static_cast<double>(size()));
  };
  labels_.reserve(grown(labels_.size()));
  dense_.reserve(grown(dense_.size()));
  ids32_.reserve(grown(ids32_.size()));
  ids64_.reserve(grown(ids64_.size()));
  weights_.reserve(grown(weights_.size()));
  lengths_.reserve(grown(lengths_.size()));
  starts_.reserve(grown(starts_.size()));
}

void Examples::shrink_to_fit() {
  labels_.shrink_to_fit();
  dense_.shrink_to_fit();
  ids32_.shrink_to_fit();
  ids64_.shrink_to_fit();
  weights_.shrink_to_fit();
  lengths_.shrink_to_fit();
  starts_.shrink_to_fit();
}

}  // namespace tessera::data
