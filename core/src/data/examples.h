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

// What is wrong with an id that a column's table does not have, behind the words for the column. Where ids are any, the
// table has not so many rows.
inline std::string bad_id_text(int64_t id, int64_t rows) {
  return rows == INT64_MAX ? str_cat(" has the id ", id, ", but ids are 0 to ", rows - 1)
                           : str_cat(" names row ", id, ", but its table has ", rows, " rows");
}

// Append-only while it is being read, constant afterwards. What a sample has lies in one place, since samples in a
// shuffled order lie anywhere in memory: labels, weight, dense values, the length of each column's bag, ids, their
// weights. It costs 4 bytes for each label, 4 per dense value and 4 (8 where a table or an id needs them) per id; bags'
// lengths and a start cost 4 per column and 8 more from the first sample on that has a bag of other than one id.
class Examples {
 public:
  Examples(size_t num_dense, std::vector<DataColumn> columns, LabelForm form = {});

  // One sample: labels (the first, then add_label() for the others and the weight), every dense value, then the bag of
  // each column, in order. end_sample() checks the counts.
  void begin_sample(float label);
  void add_label(float value) { begun_.values.push_back(value); }
  void add_dense(float value) { begun_.values.push_back(value); }
  // False: the column has no such row. The id is kept all the same: what becomes of it is for bounds_check to say.
  bool add_id(int64_t id, float weight = 1) {
    begun_.ids.push_back(id);
    if (weighted_) begun_.weights.push_back(weight);
    return id >= 0 && id < columns_[begun_.lengths.size()].rows;
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
  // Moves those samples from `first` on that `chosen` takes into a set of their own; the others close up.
  Examples take_out(int64_t first, const std::function<bool(int64_t sample)>& chosen);
  // Makes room for so many samples with as many ids each as those so far.
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
  bool weighted() const { return weighted_; }  // a column has weights: all ids have one

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
  // Of weighted ones, as ids().
  const float* weights(int64_t sample) const {
    return reinterpret_cast<const float*>(place(sample) + head_ + num_ids(sample) * (wide_ ? 8 : 4));
  }
  // Behind all samples: up to there memory may be read.
  const std::byte* end() const { return bytes_.data() + bytes_.size(); }
  // Tells the processor that a sample is read soon: first where it is, then itself, `lines` of memory.
  void expect_place(int64_t sample) const {
    if (!single_) __builtin_prefetch(starts_.data() + sample);
  }
  void expect(int64_t sample, int64_t lines) const {
    const std::byte* at = place(sample);
    for (int64_t line = 0; line < lines; ++line) __builtin_prefetch(at + line * kLine);
  }
  // That most samples lie in, and what a copy in whole steps reads behind them.
  int64_t lines() const {
    return std::min<int64_t>(std::ssize(bytes_) / std::max<int64_t>(samples_, 1) / kLine + (single_ ? 2 : 3), 6);
  }

 private:
  static constexpr int64_t kLine = 64;
  // A sample as add_sample() and the like have it.
  struct Begun {
    std::vector<float> values;  // labels, weight, dense ones
    std::vector<int32_t> lengths;
    std::vector<int64_t> ids;
    std::vector<float> weights;
    size_t bag = 0;  // ids before the current one
  };
  int64_t values_bytes() const { return 4 * static_cast<int64_t>(form_.values() + num_dense_); }
  int64_t id_bytes() const { return (wide_ ? 8 : 4) + (weighted_ ? 4 : 0); }
  int64_t sample_bytes(int64_t ids) const;  // of one with so many
  Examples empty_alike() const;             // no samples, the same layout
  const std::byte* place(int64_t sample) const {
    return bytes_.data() + (single_ ? sample * stride_ : starts_[static_cast<size_t>(sample)]);
  }
  const float* values(int64_t sample) const { return reinterpret_cast<const float*>(place(sample)); }
  void lay_out();  // fills head_ and stride_
  void change_layout(bool single, bool wide);
  void require_room(size_t samples) const;  // for so many more
  template <class Id>
  void write_begun(std::byte* to) const;
  template <class Id>
  void write(std::span<const float> labels, std::span<const float> dense, std::span<const Bags> columns, int64_t ids);

  size_t num_dense_;
  LabelForm form_;
  std::vector<DataColumn> columns_;
  std::vector<std::string> keys_;
  bool wide_ = false, weighted_ = false;
  bool single_ = true;             // every bag so far has one id: lengths and starts_ are left out
  int64_t head_ = 0, stride_ = 0;  // bytes before a sample's ids; of a sample while single_
  template <class T>
  using Column = std::vector<T, SampleMemory<T>>;
  Column<std::byte> bytes_;
  Column<int64_t> starts_;  // samples + 1 entries, once not single_
  std::string bad_id_;
  int64_t samples_ = 0;
  Begun begun_;
};

}  // namespace tessera::data
