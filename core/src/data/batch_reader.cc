// Batches out of samples in memory: the order of an epoch, a rank's slice, and the transposition to key-major.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "data/examples.h"
#include "data/random.h"
#include "tessera/data.h"

namespace tessera {
namespace {

using data::Examples;

// The first `shape` elements of a kept buffer, which grows by half where it is too small.
Tensor take(Tensor& buffer, const std::vector<int64_t>& shape, DType dtype) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  if (!buffer.defined() || buffer.dtype() != dtype || buffer.numel() < n) buffer = Tensor::empty({n + n / 2}, dtype);
  return buffer.first(shape);
}

struct Slice {
  const Examples& examples;
  const uint32_t* order;  // nullptr: as they lie
  int64_t first, count;
  int64_t sample(int64_t i) const { return order ? int64_t{order[first + i]} : first + i; }
};

// Key-major lengths and their offsets. Returns the number of ids.
template <class Index>
void fill_lengths(const Slice& slice, Index* lengths, Index* offsets) {
  const int64_t keys = slice.examples.num_columns();
  for (int64_t i = 0; i < slice.count; ++i) {
    const int32_t* of_sample = slice.examples.lengths(slice.sample(i));
    for (int64_t k = 0; k < keys; ++k) lengths[k * slice.count + i] = of_sample ? of_sample[k] : 1;
  }
  offsets[0] = 0;
  std::partial_sum(lengths, lengths + keys * slice.count, offsets + 1);
}

template <class Id, class Index>
void fill_values(const Slice& slice, const Index* lengths, const Index* offsets, Id* values) {
  const int64_t keys = slice.examples.num_columns();
  for (int64_t i = 0; i < slice.count; ++i) {
    const Id* from = slice.examples.ids<Id>(slice.sample(i));
    for (int64_t k = 0; k < keys; ++k) {
      const int64_t bag = k * slice.count + i;
      const int64_t n = lengths[bag];
      Id* to = values + offsets[bag];
      for (int64_t j = 0; j < n; ++j) to[j] = from[j];
      from += n;
    }
  }
}

int64_t count_ids(const Slice& slice) {
  int64_t ids = 0;
  for (int64_t i = 0; i < slice.count; ++i) ids += slice.examples.num_ids(slice.sample(i));
  return ids;
}

}  // namespace

int64_t Dataset::train_rows() const { return train ? train->size() : 0; }
int64_t Dataset::test_rows() const { return test ? test->size() : 0; }

void Dataset::require_known_ids() const {
  for (const ExamplesPtr& part : {train, test}) {
    if (part && !part->bad_id().empty()) fail(Code::kInvalidArgument, part->bad_id());
  }
}

BatchReader::BatchReader(ExamplesPtr examples, BatchReaderOptions options)
    : examples_(std::move(examples)), options_(options) {
  TESSERA_CHECK(examples_ != nullptr);
  if (options_.batch < 1) fail(Code::kInvalidArgument, "a batch of ", options_.batch, " samples is not possible");
  if (options_.world_size < 1 || options_.rank < 0 || options_.rank >= options_.world_size) {
    fail(Code::kInvalidArgument, "rank ", options_.rank, " is not one of ", options_.world_size);
  }
  start_epoch(0);
}

void BatchReader::start_epoch(int64_t epoch) {
  position_ = 0;
  if (!options_.shuffle) return;
  order_.resize(static_cast<size_t>(examples_->size()));
  std::iota(order_.begin(), order_.end(), 0u);
  data::Random random(data::combine(options_.seed, static_cast<uint64_t>(epoch)));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

int64_t BatchReader::batches() const { return (examples_->size() + options_.batch - 1) / options_.batch; }

int64_t BatchReader::first_sample(int64_t batch) const {
  const int64_t n = batches(), size = examples_->size();
  if (batch == n) return size;
  if (batch < n - 1 || batch == 0) return batch * options_.batch;
  const int64_t before = (batch - 1) * options_.batch;
  return before + (size - before + 1) / 2;
}

void BatchReader::seek(int64_t index) {
  if (index < 0 || index > batches()) {
    fail(Code::kOutOfRange, "there is no batch ", index, ": an epoch has ", batches(), " batches");
  }
  position_ = index;
}

bool BatchReader::next(Batch& batch) {
  if (position_ >= batches()) return false;
  const int64_t start = first_sample(position_++);
  const int64_t global = first_sample(position_) - start;
  const int64_t begin = global * options_.rank / options_.world_size;
  const int64_t end = global * (options_.rank + 1) / options_.world_size;
  const Slice slice{*examples_, order_.empty() ? nullptr : order_.data(), start + begin, end - begin};

  const int64_t inputs = examples_->num_dense();
  batch.global_size = global;
  batch.dense = take(batch.buffers_.dense, {slice.count, inputs}, DType::kFloat32);
  batch.labels = take(batch.buffers_.labels, {slice.count}, DType::kFloat32);
  for (int64_t i = 0; i < slice.count; ++i) {
    const int64_t sample = slice.sample(i);
    if (inputs > 0)
      std::memcpy(batch.dense.data<float>() + i * inputs, examples_->dense(sample), inputs * sizeof(float));
    batch.labels.data<float>()[i] = examples_->label(sample) ? 1.0f : 0.0f;
  }

  const int64_t ids = count_ids(slice), bags = examples_->num_columns() * slice.count;
  const DType id_type = examples_->wide() ? DType::kInt64 : DType::kInt32;
  const DType index_type = ids > std::numeric_limits<int32_t>::max() ? DType::kInt64 : DType::kInt32;
  const Tensor values = take(batch.buffers_.values, {ids}, id_type);
  const Tensor lengths = take(batch.buffers_.lengths, {bags}, index_type);
  const Tensor offsets = take(batch.buffers_.offsets, {bags + 1}, index_type);
  const auto fill = [&](auto* id, auto* index) {
    using Index = std::remove_pointer_t<decltype(index)>;
    using Id = std::remove_pointer_t<decltype(id)>;
    fill_lengths(slice, lengths.data<Index>(), offsets.data<Index>());
    fill_values(slice, lengths.data<Index>(), offsets.data<Index>(), values.data<Id>());
  };
  constexpr int32_t* kNarrow = nullptr;
  constexpr int64_t* kWide = nullptr;
  if (index_type == DType::kInt32)
    examples_->wide() ? fill(kWide, kNarrow) : fill(kNarrow, kNarrow);
  else
    examples_->wide() ? fill(kWide, kWide) : fill(kNarrow, kWide);
  batch.sparse = KeyedJaggedTensor(
      {.keys = examples_->keys(), .values = values, .lengths = lengths, .offsets = offsets, .stride = slice.count});
  return true;
}

}  // namespace tessera
