#include "data/examples.h"

#include <sys/mman.h>

#include <cstring>
#include <limits>

#include "data/short_runs.h"

namespace tessera::data {
namespace {

using Bags = Examples::Bags;

// True if every bag of the column has one id.
bool all_single(const Bags& c, size_t samples) {
  int64_t other = 0;
  for (size_t i = 0; i < samples; ++i) other |= (c.begins[i + 1] - c.begins[i]) ^ 1;
  return other == 0;
}

// rows: all ids are rows of the table. narrow: all ids fit in 32 bits.
struct IdsFit {
  bool rows, narrow;
};
IdsFit ids_fit(const Bags& c, size_t samples, int64_t rows) {
  // Nearly always all ids are rows of a table with 32-bit ids. One sign bit tells that without a branch per id.
  const int64_t last = rows - 1;
  int64_t outside = last > std::numeric_limits<int32_t>::max() ? -1 : 0;
  for (int64_t j = c.begins[0]; j < c.begins[samples]; ++j) {
    const auto below_end = static_cast<int64_t>(static_cast<uint64_t>(last) - static_cast<uint64_t>(c.ids[j]));
    outside |= c.ids[j] | below_end;
  }
  if (outside >= 0) return {true, true};
  int64_t beyond = 0;
  bool unknown = false;
  for (int64_t j = c.begins[0]; j < c.begins[samples]; ++j) {
    beyond |= c.ids[j] ^ static_cast<int32_t>(c.ids[j]);
    unknown |= static_cast<uint64_t>(c.ids[j]) >= static_cast<uint64_t>(rows);
  }
  return {!unknown, beyond == 0};
}

template <class T>
T* at(std::byte* place) {
  return reinterpret_cast<T*>(place);
}

}  // namespace

void* sample_memory(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  if (bytes < kHuge) return std::malloc(std::max(bytes, size_t{1}));
  if (bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()) - kHuge) return nullptr;
  const size_t rounded = (bytes + kHuge - 1) / kHuge * kHuge;
  void* memory = std::aligned_alloc(kHuge, rounded);
  if (memory != nullptr) (void)madvise(memory, rounded, MADV_HUGEPAGE);  // only a hint, so a failure does not matter
  return memory;
}

Examples::Examples(size_t num_dense, std::vector<DataColumn> columns, LabelForm form)
    : num_dense_(num_dense), form_(form), columns_(std::move(columns)) {
  for (const DataColumn& column : columns_) {
    keys_.push_back(column.name);
    wide_ = wide_ || column.rows > std::numeric_limits<int32_t>::max();
    weighted_ = weighted_ || column.weighted;
  }
  lay_out();
}

void Examples::lay_out() {
  head_ = values_bytes() + (single_ ? 0 : 4 * num_columns());
  if (wide_) head_ = (head_ + 7) / 8 * 8;
  stride_ = sample_bytes(num_columns());
}

int64_t Examples::sample_bytes(int64_t ids) const {
  const int64_t bytes = head_ + ids * id_bytes();
  return wide_ ? (bytes + 7) / 8 * 8 : bytes;
}

// Rewrites all samples in the new layout.
void Examples::change_layout(bool single, bool wide) {
  const auto take = [&](Examples& to) {
    to.single_ = single;
    to.wide_ = wide;
    to.lay_out();
    if (!single) to.starts_.assign(1, 0);
  };
  if (samples_ == 0) return take(*this);
  Examples anew(num_dense_, columns_, form_);
  take(anew);
  anew.bytes_.reserve(bytes_.capacity());
  for (int64_t s = 0; s < samples_; ++s) anew.add_sample(*this, s);
  anew.bad_id_ = std::move(bad_id_);
  anew.begun_ = std::move(begun_);
  *this = std::move(anew);
}

void Examples::require_room(size_t samples) const {
  if (static_cast<size_t>(samples_) + samples > std::numeric_limits<uint32_t>::max()) {
    fail(Code::kResourceExhausted, "a data set of more than 2^32 - 1 samples does not fit: set data.limit");
  }
}

void Examples::begin_sample(float label) {
  require_room(1);
  begun_.values.assign(1, label);
  begun_.lengths.clear();
  begun_.ids.clear();
  begun_.weights.clear();
  begun_.bag = 0;
}

void Examples::end_bag() {
  begun_.lengths.push_back(static_cast<int32_t>(begun_.ids.size() - begun_.bag));
  begun_.bag = begun_.ids.size();
}

void Examples::end_sample() {
  const Begun& b = begun_;
  TESSERA_CHECK(b.lengths.size() == columns_.size() && b.values.size() == num_dense_ + form_.values(),
                "a sample is not complete");
  const bool single = single_ && std::all_of(b.lengths.begin(), b.lengths.end(), [](int32_t n) { return n == 1; });
  const bool wide =
      wide_ || std::any_of(b.ids.begin(), b.ids.end(), [](int64_t id) { return id != static_cast<int32_t>(id); });
  if (single != single_ || wide != wide_) change_layout(single, wide);
  const auto ids = std::ssize(begun_.ids);
  const size_t before = bytes_.size();
  bytes_.resize(before + static_cast<size_t>(sample_bytes(ids)));
  wide_ ? write_begun<int64_t>(bytes_.data() + before) : write_begun<int32_t>(bytes_.data() + before);
  if (!single_) starts_.push_back(std::ssize(bytes_));
  ++samples_;
}

template <class Id>
void Examples::write_begun(std::byte* to) const {
  std::copy(begun_.values.begin(), begun_.values.end(), at<float>(to));
  if (!single_) std::copy(begun_.lengths.begin(), begun_.lengths.end(), at<int32_t>(to + values_bytes()));
  Id* ids = at<Id>(to + head_);
  for (const int64_t id : begun_.ids) *ids++ = static_cast<Id>(id);
  std::copy(begun_.weights.begin(), begun_.weights.end(), reinterpret_cast<float*>(ids));
}

bool Examples::append(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns) {
  const size_t samples = labels.size() / form_.values();
  TESSERA_CHECK(labels.size() == samples * form_.values() && columns.size() == columns_.size() &&
                dense.size() == samples * num_dense_);
  require_room(samples);
  int64_t ids = 0;
  bool single = single_, wide = wide_, known = true;
  for (size_t k = 0; k < columns.size(); ++k) {
    const Bags& c = columns[k];
    ids += c.begins[samples] - c.begins[0];
    single = single && all_single(c, samples);
    const IdsFit fit = ids_fit(c, samples, columns_[k].rows);
    wide = wide || !fit.narrow;
    known = known && fit.rows;
  }
  if (single != single_ || wide != wide_) change_layout(single, wide);
  wide_ ? write<int64_t>(labels, dense, columns, ids) : write<int32_t>(labels, dense, columns, ids);
  return known;
}

// `ids`: total number of ids.
template <class Id>
void Examples::write(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns,
                     int64_t ids) {
  const size_t labels_each = form_.values(), samples = labels.size() / labels_each, before = bytes_.size();
  const auto each = static_cast<int64_t>(samples);
  bytes_.resize(before + static_cast<size_t>(each * sample_bytes(0) + ids * id_bytes() + (wide_ ? 8 * each : 0)));
  if (!single_) starts_.resize(starts_.size() + samples);
  int64_t* start = single_ ? nullptr : starts_.data() + (starts_.size() - samples);
  std::byte *to = bytes_.data() + before, *const end = bytes_.data() + bytes_.size();
  const bool runs = ids >= kRunsFrom * each * num_columns();
  const float *label = labels.data(), *number = dense.data();
  for (size_t i = 0; i < samples; ++i) {
    float* value = at<float>(to);
    for (size_t k = 0; k < labels_each; ++k) *value++ = *label++;
    for (size_t k = 0; k < num_dense_; ++k) *value++ = *number++;
    if (!single_) {
      int32_t* length = at<int32_t>(to + values_bytes());
      for (const Bags& c : columns) *length++ = static_cast<int32_t>(c.begins[i + 1] - c.begins[i]);
    }
    Id* id = at<Id>(to + head_);
    for (const Bags& c : columns) {
      const int64_t begin = c.begins[i], n = c.begins[i + 1] - begin;
      if (runs)
        copy_run(c.ids + begin, c.ids + c.begins[samples], n, id, at<Id>(end));
      else
        for (int64_t j = 0; j < n; ++j) id[j] = static_cast<Id>(c.ids[begin + j]);
      id += n;
    }
    const int64_t count = id - at<Id>(to + head_);
    if (weighted_) {
      float* weight = reinterpret_cast<float*>(id);
      for (const Bags& c : columns) {
        for (int64_t j = c.begins[i]; j < c.begins[i + 1]; ++j) *weight++ = c.weights ? c.weights[j] : 1.0f;
      }
    }
    to += sample_bytes(count);
    if (!single_) *start++ = to - bytes_.data();
  }
  bytes_.resize(static_cast<size_t>(to - bytes_.data()));
  samples_ += each;
}

void Examples::clear() {
  *this = [&] {
    Examples empty(num_dense_, std::move(columns_), form_);
    (empty.bytes_ = std::move(bytes_)).clear();
    (empty.starts_ = std::move(starts_)).clear();
    return empty;
  }();
}

void Examples::add_sample(const Examples& from, int64_t sample) {
  if (from.single_ == single_ && from.wide_ == wide_ && !single_) {  // copied unchanged
    require_room(1);
    const std::byte* place = from.place(sample);
    bytes_.insert(bytes_.end(), place, place + (from.starts_[sample + 1] - from.starts_[sample]));
    starts_.push_back(std::ssize(bytes_));
    ++samples_;
    return;
  }
  begin_sample(from.label(sample));
  for (size_t i = 1; i < form_.values(); ++i) add_label(from.label(sample, i));
  for (int64_t i = 0; i < from.num_dense(); ++i) add_dense(from.dense(sample)[i]);
  const int32_t* lengths = from.lengths(sample);
  int64_t id = 0;
  for (int64_t column = 0; column < from.num_columns(); ++column) {
    for (int32_t n = lengths ? lengths[column] : 1; n > 0; --n, ++id)
      add_id(from.wide() ? from.ids<int64_t>(sample)[id] : from.ids<int32_t>(sample)[id],
             from.weighted() ? from.weights(sample)[id] : 1);
    end_bag();
  }
  end_sample();
}

Examples Examples::empty_alike() const {
  Examples out(num_dense_, columns_, form_);
  out.single_ = single_;
  out.wide_ = wide_;
  out.lay_out();
  if (!single_) out.starts_.assign(1, 0);
  return out;
}

Examples Examples::take_out(int64_t first, const std::function<bool(int64_t)>& chosen) {
  TESSERA_CHECK(first >= 0 && first <= size());
  Examples out = empty_alike();
  std::byte* to = bytes_.data() + (place(first) - bytes_.data());
  int64_t kept = first;
  for (int64_t sample = first; sample < samples_; ++sample) {
    const std::byte* from = place(sample);
    const int64_t bytes =
        single_ ? stride_ : starts_[static_cast<size_t>(sample) + 1] - starts_[static_cast<size_t>(sample)];
    if (chosen(sample)) {
      out.bytes_.insert(out.bytes_.end(), from, from + bytes);
      if (!single_) out.starts_.push_back(std::ssize(out.bytes_));
      ++out.samples_;
      continue;
    }
    std::memmove(to, from, static_cast<size_t>(bytes));
    to += bytes;
    ++kept;
    if (!single_) starts_[static_cast<size_t>(kept)] = to - bytes_.data();
  }
  samples_ = kept;
  bytes_.resize(static_cast<size_t>(to - bytes_.data()));
  if (!single_) starts_.resize(static_cast<size_t>(kept) + 1);
  return out;
}

void Examples::reserve(int64_t samples) {
  if (samples <= size() || samples_ == 0) return;
  const double more = static_cast<double>(samples) / static_cast<double>(size());
  bytes_.reserve(static_cast<size_t>(static_cast<double>(bytes_.size()) * more));
  if (!single_) starts_.reserve(static_cast<size_t>(samples) + 1);
}

void Examples::shrink_to_fit() {
  bytes_.shrink_to_fit();
  starts_.shrink_to_fit();
}

}  // namespace tessera::data
