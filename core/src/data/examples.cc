#include "data/examples.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "data/short_runs.h"

namespace tessera::data {
namespace {

using Bags = Examples::Bags;

// The new part of `v`, `more` elements.
template <class T>
T* grow(std::vector<T, SampleMemory<T>>& v, size_t more) {
  v.resize(v.size() + more);
  return v.data() + (v.size() - more);
}

// Every bag of the column has one id.
bool all_single(const Bags& c, size_t samples) {
  int64_t other = 0;
  for (size_t i = 0; i < samples; ++i) other |= (c.begins[i + 1] - c.begins[i]) ^ 1;
  return other == 0;
}

// What the ids of a column are: rows of a table with so many, and numbers of 32 bits.
struct IdsFit {
  bool rows, narrow;
};
IdsFit ids_fit(const Bags& c, size_t samples, int64_t rows) {
  uint64_t bits = 0;  // of all ids
  int32_t most = -1;
  for (int64_t j = c.begins[0]; j < c.begins[samples]; ++j) {
    bits |= static_cast<uint64_t>(c.ids[j]);
    most = std::max(most, static_cast<int32_t>(c.ids[j]));
  }
  if (bits <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) return {most < rows, true};
  int64_t beyond = 0;
  bool unknown = false;
  for (int64_t j = c.begins[0]; j < c.begins[samples]; ++j) {
    beyond |= c.ids[j] ^ static_cast<int32_t>(c.ids[j]);
    unknown |= static_cast<uint64_t>(c.ids[j]) >= static_cast<uint64_t>(rows);
  }
  return {!unknown, beyond == 0};
}

// What a column has for its ids.
const int64_t* ids_of(const Bags& c) { return c.ids; }
const float* weights_of(const Bags& c) { return c.weights; }

// What the columns have for their ids, sample after sample, in `count` places. Null: 1 for each.
template <class T, class Of>
void transpose(size_t samples, std::span<const Bags> columns, T* to, size_t count, const Of& of) {
  const T* const end = to + count;
  const bool runs = static_cast<int64_t>(count) >= kRunsFrom * static_cast<int64_t>(samples * columns.size());
  for (size_t i = 0; i < samples; ++i) {
    for (const Bags& c : columns) {
      const auto* from = of(c);
      const int64_t begin = c.begins[i], n = c.begins[i + 1] - begin;
      if (from == nullptr)
        std::fill_n(to, n, static_cast<T>(1));
      else if (runs)
        copy_run(from + begin, from + c.begins[samples], n, to, end);
      else
        for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(from[begin + j]);
      to += n;
    }
  }
}

}  // namespace

void* sample_memory(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  if (bytes < kHuge) return std::malloc(std::max(bytes, size_t{1}));
  if (bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()) - kHuge) return nullptr;
  const size_t rounded = (bytes + kHuge - 1) / kHuge * kHuge;
  void* memory = std::aligned_alloc(kHuge, rounded);
  if (memory != nullptr) (void)madvise(memory, rounded, MADV_HUGEPAGE);  // a hint: fine when refused
  return memory;
}

Examples::Examples(size_t num_dense, std::vector<DataColumn> columns, LabelForm form)
    : num_dense_(num_dense), form_(form), columns_(std::move(columns)) {
  for (const DataColumn& column : columns_) {
    keys_.push_back(column.name);
    wide_ = wide_ || column.rows > std::numeric_limits<int32_t>::max();
    weighted_ = weighted_ || column.weighted;
  }
}

void Examples::require_room(size_t samples) const {
  if (samples_ + samples > std::numeric_limits<uint32_t>::max()) {
    fail(Code::kResourceExhausted, "a data set of more than 2^32 - 1 samples does not fit: set data.limit");
  }
}

void Examples::begin_sample(float label) {
  require_room(1);
  labels_.push_back(label);
  ++samples_;
  column_ = 0;
  bag_length_ = 0;
}

bool Examples::append(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns) {
  const size_t samples = labels.size() / form_.values();
  TESSERA_CHECK(labels.size() == samples * form_.values() && columns.size() == columns_.size() &&
                dense.size() == samples * num_dense_);
  require_room(samples);
  size_t ids = 0;
  bool single = true, narrow = true, known = true;
  for (size_t k = 0; k < columns.size(); ++k) {
    const Bags& c = columns[k];
    ids += static_cast<size_t>(c.begins[samples] - c.begins[0]);
    single = single && all_single(c, samples);
    const IdsFit fit = ids_fit(c, samples, columns_[k].rows);
    narrow = narrow && (wide_ || fit.narrow);
    known = known && fit.rows;
  }
  if (!narrow) widen();
  column_ = 0;
  if (!single && single_) leave_single(samples_);
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  dense_.insert(dense_.end(), dense.begin(), dense.end());
  if (wide_)
    transpose(samples, columns, grow(ids64_, ids), ids, ids_of);
  else
    transpose(samples, columns, grow(ids32_, ids), ids, ids_of);
  if (weighted_) transpose(samples, columns, grow(weights_, ids), ids, weights_of);
  if (!single_) append_lengths(samples, columns);
  samples_ += samples;
  return known;
}

void Examples::append_lengths(size_t samples, std::span<const Bags> columns) {
  int32_t* length = grow(lengths_, samples * columns.size());
  int64_t end = starts_.back();
  int64_t* start = grow(starts_, samples);
  for (size_t i = 0; i < samples; ++i) {
    for (const Bags& c : columns) {
      *length = static_cast<int32_t>(c.begins[i + 1] - c.begins[i]);
      end += *length++;
    }
    *start++ = end;
  }
}

void Examples::clear() {
  *this = [&] {
    Examples empty(num_dense_, std::move(columns_), form_);
    const auto keep = [](auto& to, auto& from) { (to = std::move(from)).clear(); };
    keep(empty.labels_, labels_);
    keep(empty.dense_, dense_);
    keep(empty.ids32_, ids32_);
    keep(empty.ids64_, ids64_);
    keep(empty.weights_, weights_);
    keep(empty.lengths_, lengths_);
    keep(empty.starts_, starts_);
    return empty;
  }();
}

void Examples::end_bag() {
  if (bag_length_ != 1 && single_) leave_single(samples_ - 1);
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

// All samples before the current one, and its columns before the current one, had one id each.
void Examples::leave_single(size_t samples) {
  single_ = false;
  lengths_.assign(samples * columns_.size() + column_, 1);
  starts_.resize(samples + 1);
  for (size_t s = 0; s <= samples; ++s) starts_[s] = static_cast<int64_t>(s * columns_.size());
}

void Examples::widen() {
  wide_ = true;
  ids64_.assign(ids32_.begin(), ids32_.end());
  ids32_ = {};
}

template <class Id>
void Examples::add_bags(const Examples& from, int64_t sample) {
  const Id* ids = from.ids<Id>(sample);
  const float* weights = from.weighted() ? from.weights(sample) : nullptr;
  const int32_t* lengths = from.lengths(sample);
  for (int64_t column = 0; column < from.num_columns(); ++column) {
    for (int32_t n = lengths ? lengths[column] : 1; n > 0; --n) add_id(*ids++, weights ? *weights++ : 1);
    end_bag();
  }
}

void Examples::add_sample(const Examples& from, int64_t sample) {
  begin_sample(from.label(sample));
  for (size_t i = 1; i < form_.values(); ++i) add_label(from.label(sample, i));
  for (int64_t i = 0; i < from.num_dense(); ++i) add_dense(from.dense(sample)[i]);
  from.wide() ? add_bags<int64_t>(from, sample) : add_bags<int32_t>(from, sample);
  end_sample();
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
