// Samples in memory: a few flat arrays, sample after sample.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.h"

namespace tessera::data {

// Memory for samples, from huge pages where it is large: in a shuffled order they lie anywhere in it. Null: there is
// none. To be freed by std::free().
void* sample_memory(size_t bytes);

// An allocator of that, which says how much it was to be where there is none; it is not written before values are.
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

// What a sample has before its dense values: labels, and where samples have weights, its weight behind them.
struct LabelForm {
  size_t labels = 1;
  bool weighted = false;
  bool binary = true;  // nothing but 0 and 1 was meant
  size_t values() const { return labels + (weighted ? 1 : 0); }
};

// Append-only while it is being read, constant afterwards. A sample costs 4 bytes for each label, 4 per dense value and
// 4 (8 where a table or an id needs them) per id; bags' lengths and a start cost 4 per column and 8 more from the first
// sample on that has a bag of other than one id.
class Examples {
 public:
  Examples(size_t num_dense, std::vector<DataColumn> columns, LabelForm form = {});

  // One sample: labels (the first, then add_label() for the others and the weight), every dense value, then the bag of
  // each column, in order. end_sample() checks the counts.
  void begin_sample(float label);
  void add_label(float value) { labels_.push_back(value); }
  void add_dense(float value) { dense_.push_back(value); }
  // False: the column has no such row. The id is kept all the same: what becomes of it is for bounds_check to say.
  bool add_id(int64_t id, float weight = 1) {
    if (weighted_) weights_.push_back(weight);
    if (!wide_ && id != static_cast<int32_t>(id)) widen();
    if (wide_)
      ids64_.push_back(id);
    else
      ids32_.push_back(static_cast<int32_t>(id));
    ++bag_length_;
    return id >= 0 && id < columns_[column_].rows;
  }
  void note_bad_id(std::string sentence) { bad_id_ = std::move(sentence); }
  const std::string& bad_id() const { return bad_id_; }  // the first one, as a sentence; empty: there is none
  void end_bag();
  void end_sample();
  // Several samples in one go; `labels` has each one's, its weight behind them where it has one. Of a column, sample i
  // has the ids [begins[i], begins[i + 1]), and their weights; null: all 1. `dense` is sample after sample. False: an
  // id is no row of its column, and is kept all the same.
  struct Bags {
    const int64_t *ids = nullptr, *begins = nullptr;
    const float* weights = nullptr;
  };
  bool append(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns);
  void clear();  // no samples; the memory stays
  // A sample of another set with the same form.
  void add_sample(const Examples& from, int64_t sample);
  // Moves the samples from `first` on into a set of their own.
  Examples split_off(int64_t first);
  // Makes room for so many samples with as many ids each as those so far.
  void reserve(int64_t samples);
  void shrink_to_fit();

  int64_t size() const { return static_cast<int64_t>(labels_.size() / form_.values()); }
  const LabelForm& label_form() const { return form_; }
  int64_t num_dense() const { return static_cast<int64_t>(num_dense_); }
  int64_t num_columns() const { return static_cast<int64_t>(columns_.size()); }
  const std::vector<DataColumn>& columns() const { return columns_; }
  const std::vector<std::string>& keys() const { return keys_; }
  bool wide() const { return wide_; }          // ids are int64
  bool weighted() const { return weighted_; }  // a column has weights: all ids have one

  float label(int64_t sample, size_t which = 0) const {
    return labels_[static_cast<size_t>(sample) * form_.values() + which];
  }
  float sample_weight(int64_t sample) const { return form_.weighted ? label(sample, form_.labels) : 1.0f; }
  const float* dense(int64_t sample) const { return dense_.data() + sample * num_dense_; }
  // Number of ids in each column's bag; nullptr: one each.
  const int32_t* lengths(int64_t sample) const {
    return single_ ? nullptr : lengths_.data() + sample * columns_.size();
  }
  // All ids of the sample, column after column.
  int64_t first_id(int64_t sample) const { return single_ ? sample * num_columns() : starts_[sample]; }
  int64_t num_ids(int64_t sample) const { return first_id(sample + 1) - first_id(sample); }
  template <class T>
  const T* ids(int64_t sample) const {
    if constexpr (sizeof(T) == 8)
      return ids64_.data() + first_id(sample);
    else
      return ids32_.data() + first_id(sample);
  }
  // Tells the processor that a sample, or its ids, are read soon: samples in a shuffled order lie anywhere in memory.
  void expect(int64_t sample) const {
    const size_t s = static_cast<size_t>(sample);
    __builtin_prefetch(labels_.data() + s * form_.values());
    __builtin_prefetch(dense_.data() + s * num_dense_);
    if (single_) return expect_ids(sample);
    __builtin_prefetch(lengths_.data() + s * columns_.size());
    __builtin_prefetch(starts_.data() + s);
  }
  void expect_ids(int64_t sample) const {
    constexpr ptrdiff_t kLine = 64;
    const char* at = wide_ ? reinterpret_cast<const char*>(ids<int64_t>(sample))
                           : reinterpret_cast<const char*>(ids<int32_t>(sample));
    __builtin_prefetch(at);
    __builtin_prefetch(at + kLine);
  }
  // Of weighted ones, as ids().
  const float* weights(int64_t sample) const { return weights_.data() + first_id(sample); }

 private:
  template <class Id>
  void add_bags(const Examples& from, int64_t sample);
  void require_room(size_t samples) const;  // for so many more
  void leave_single(size_t samples);        // before the current one
  void widen();
  void append_lengths(size_t samples, std::span<const Bags> columns);

  size_t num_dense_;
  LabelForm form_;
  std::vector<DataColumn> columns_;
  std::vector<std::string> keys_;
  bool wide_ = false, weighted_ = false;
  bool single_ = true;  // every bag so far has one id: lengths_ and starts_ are left out
  template <class T>
  using Column = std::vector<T, SampleMemory<T>>;
  Column<float> labels_;
  Column<float> dense_;
  Column<int32_t> ids32_;
  Column<int64_t> ids64_;
  Column<float> weights_;
  Column<int32_t> lengths_;
  Column<int64_t> starts_;  // samples + 1 entries
  std::string bad_id_;
  size_t column_ = 0, samples_ = 0;  // of the sample being read; begun so far
  int32_t bag_length_ = 0;
};

}  // namespace tessera::data
