// Samples in memory: a few flat arrays, sample after sample.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.h"

namespace tessera::data {

// Allocates memory for samples, with huge pages if it is large, because a shuffled order reads it at random. Null: out
// of memory. Free it with std::free().
void* sample_memory(size_t bytes);

// An allocator of such memory. Its error names the size that was wanted. Elements are not zeroed.
template <class T>
struct SampleMemory : std::allocator<T> {
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }
  template <class U>
  struct rebind {
    using other = SampleMemory<U>;
  };
  T* allocate(size_t n) {
    if (void* memory = sample_memory(n * sizeof(T))) return static_cast<T*>(memory);
    fail(Code::kResourceExhausted, "no memory for ", n * sizeof(T),
         " bytes of samples: take fewer, with data.limit or data.samples");
  }
  void deallocate(T* memory, size_t) { std::free(memory); }
};

// The layout before a sample's dense values: labels, followed by its weight if samples have weights.
struct LabelForm {
  size_t labels = 1;
  bool weighted = false;
  bool binary = true;  // all labels are meant to be 0 or 1
  size_t values() const { return labels + (weighted ? 1 : 0); }
};

// The end of a sentence about an id that a column's table does not have; the column's name comes before it. If any id
// is allowed, the table still has not that many rows.
inline std::string bad_id_text(int64_t id, int64_t rows) {
  return rows == INT64_MAX ? str_cat(" has the id ", id, ", but ids are 0 to ", rows - 1)
                           : str_cat(" names row ", id, ", but its table has ", rows, " rows");
}

// Append-only while it is read, constant afterwards. All data of a sample are adjacent, because a shuffled order visits
// samples at random: labels, weight, dense values, the lengths of its bags, ids, and their weights. A label or dense
// value takes 4 bytes, an id 4 or, if ids are large, 8. Lengths and a start take 4 bytes per column and 8 more, from
// the first sample on that has a bag without exactly one id.
class Examples {
 public:
  Examples(size_t num_dense, std::vector<DataColumn> columns, LabelForm form = {});

  // Adds one sample: labels (the first, then add_label() for the others and the weight), all dense values, then the bag
  // of each column, in order. end_sample() checks the counts.
  void begin_sample(float label);
  void add_label(float value) { begun_.values.push_back(value); }
  void add_dense(float value) { begun_.values.push_back(value); }
  // False: the column has no such row. The id is kept anyway, because bounds_check decides about it.
  bool add_id(int64_t id, float weight = 1) {
    begun_.ids.push_back(id);
    if (weighted_) begun_.weights.push_back(weight);
    return id >= 0 && id < columns_[begun_.lengths.size()].rows;
  }
  void note_bad_id(std::string sentence) { bad_id_ = std::move(sentence); }
  const std::string& bad_id() const { return bad_id_; }  // a sentence about the first bad id; empty: none
  void end_bag();
  void end_sample();
  // Adds several samples at once. `labels` has each sample's labels, followed by its weight if there are weights.
  // `dense` is sample after sample. Of a column, sample i has the ids [begins[i], begins[i + 1]) and their weights;
  // null: all 1. False: an id is no row of its column; it is kept anyway.
  struct Bags {
    const int64_t *ids = nullptr, *begins = nullptr;
    const float* weights = nullptr;
  };
  bool append(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns);
  void clear();  // removes the samples, keeps the memory
  // Adds a sample of another set with the same form.
  void add_sample(const Examples& from, int64_t sample);
  // Moves the samples from `first` on that `chosen` takes into a new set. The others close the gaps.
  Examples take_out(int64_t first, const std::function<bool(int64_t sample)>& chosen);
  // Reserves memory for `samples` more samples of the average size so far.
  void reserve(int64_t samples);
  void shrink_to_fit();
  uint64_t hash() const;  // of all samples, in their order

  int64_t size() const { return samples_; }
  const LabelForm& label_form() const { return form_; }
  int64_t num_dense() const { return static_cast<int64_t>(num_dense_); }
  int64_t num_columns() const { return static_cast<int64_t>(columns_.size()); }
  const std::vector<DataColumn>& columns() const { return columns_; }
  const std::vector<std::string>& keys() const { return keys_; }
  bool wide() const { return wide_; }          // ids are int64
  bool weighted() const { return weighted_; }  // a column has weights, so all ids have one

  float label(int64_t sample, size_t which = 0) const { return values(sample)[which]; }
  float sample_weight(int64_t sample) const { return form_.weighted ? label(sample, form_.labels) : 1.0f; }
  const float* dense(int64_t sample) const { return values(sample) + form_.values(); }
  // Number of ids in each column's bag; nullptr: one each.
  const int32_t* lengths(int64_t sample) const {
    return single_ ? nullptr : reinterpret_cast<const int32_t*>(place(sample) + values_bytes());
  }
  int64_t num_ids(int64_t sample) const {
    if (single_) return num_columns();
    const int64_t bytes = starts_[sample + 1] - starts_[sample] - head_;
    return weighted_ ? bytes / id_bytes() : bytes >> (wide_ ? 3 : 2);
  }
  // All ids of the sample, column after column.
  template <class T>
  const T* ids(int64_t sample) const {
    return reinterpret_cast<const T*>(place(sample) + head_);
  }
  // Like ids(), if weighted().
  const float* weights(int64_t sample) const {
    return reinterpret_cast<const float*>(place(sample) + head_ + num_ids(sample) * (wide_ ? 8 : 4));
  }
  // The end of the memory that may be read.
  const std::byte* end() const { return bytes_.data() + bytes_.size(); }
  // Prefetches a sample that is read soon: first its place, then `lines` cache lines of it.
  void expect_place(int64_t sample) const {
    if (!single_) __builtin_prefetch(starts_.data() + sample);
  }
  void expect(int64_t sample, int64_t lines) const {
    const std::byte* at = place(sample);
    for (int64_t line = 0; line < lines; ++line) __builtin_prefetch(at + line * kLine);
  }
  // Number of cache lines that most samples occupy, including what copy_run() reads after them.
  int64_t lines() const {
    return std::min<int64_t>(std::ssize(bytes_) / std::max<int64_t>(samples_, 1) / kLine + (single_ ? 2 : 3), 6);
  }

 private:
  static constexpr int64_t kLine = 64;
  // A sample that add_sample() and similar calls are building.
  struct Begun {
    std::vector<float> values;  // labels, weight, dense values
    std::vector<int32_t> lengths;
    std::vector<int64_t> ids;
    std::vector<float> weights;
    size_t bag = 0;  // number of ids before the current bag
  };
  int64_t values_bytes() const { return 4 * static_cast<int64_t>(form_.values() + num_dense_); }
  int64_t id_bytes() const { return (wide_ ? 8 : 4) + (weighted_ ? 4 : 0); }
  int64_t sample_bytes(int64_t ids) const;  // size of a sample with `ids` ids
  Examples empty_alike() const;             // no samples, the same layout
  const std::byte* place(int64_t sample) const {
    return bytes_.data() + (single_ ? sample * stride_ : starts_[static_cast<size_t>(sample)]);
  }
  const float* values(int64_t sample) const { return reinterpret_cast<const float*>(place(sample)); }
  void lay_out();  // sets head_ and stride_
  void change_layout(bool single, bool wide);
  void require_room(size_t samples) const;  // for `samples` more
  template <class Id>
  void write_begun(std::byte* to) const;
  template <class Id>
  void write(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns, int64_t ids);

  size_t num_dense_;
  LabelForm form_;
  std::vector<DataColumn> columns_;
  std::vector<std::string> keys_;
  bool wide_ = false, weighted_ = false;
  bool single_ = true;             // every bag so far has one id, so lengths and starts_ are left out
  int64_t head_ = 0, stride_ = 0;  // bytes before a sample's ids; bytes of a sample while single_
  template <class T>
  using Column = std::vector<T, SampleMemory<T>>;
  Column<std::byte> bytes_;
  Column<int64_t> starts_;  // samples + 1 entries unless single_
  std::string bad_id_;
  int64_t samples_ = 0;
  Begun begun_;
};

}  // namespace tessera::data
