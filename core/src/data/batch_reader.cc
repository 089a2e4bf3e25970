// Makes batches from samples in memory: the order of an epoch, a rank's slice, and the transposition to key-major.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "data/examples.h"
#include "data/sample_stream.h"
#include "data/short_runs.h"
#include "tessera/data.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

using data::copy_run;
using data::Examples;
using data::SampleRef;
using Refs = std::span<const SampleRef>;

// Samples are scattered in memory, so each is prefetched this many samples before it is used.
constexpr int64_t kAhead = 32;

// Returns the first `shape` elements of a reused buffer, which grows by half if it is too small.
Tensor take(Tensor& buffer, const std::vector<int64_t>& shape, DType dtype) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  if (!buffer.defined() || buffer.dtype() != dtype || buffer.numel() < n) buffer = Tensor::empty({n + n / 2}, dtype);
  return buffer.first(shape);
}

// Fills key-major lengths and their offsets.
template <class Index>
void fill_lengths(Refs refs, int64_t keys, Index* lengths, Index* offsets) {
  const int64_t count = std::ssize(refs);
  for (int64_t i = 0; i < count; ++i) {
    const SampleRef& ref = refs[static_cast<size_t>(i)];
    const int32_t* of_sample = ref.examples->lengths(ref.index);
    for (int64_t k = 0; k < keys; ++k) lengths[k * count + i] = of_sample ? of_sample[k] : 1;
  }
  offsets[0] = 0;
  std::partial_sum(lengths, lengths + keys * count, offsets + 1);
}

// Copies sample i's data for its ids, from `from` on. Memory up to `from_end` may be read.
template <bool runs, class From, class To, class Index>
void fill_sample(const From* from, const From* from_end, int64_t i, int64_t count, int64_t keys, const Index* lengths,
                 const Index* offsets, To* values) {
  for (int64_t k = 0; k < keys; ++k) {
    const int64_t bag = k * count + i, n = lengths[bag];
    To* to = values + offsets[bag];
    if constexpr (runs) {
      copy_run(from, from_end, n, to, values + offsets[(k + 1) * count]);
    } else {
      for (int64_t j = 0; j < n; ++j) to[j] = static_cast<To>(from[j]);
    }
    from += n;
  }
}

// `weights`: null if the samples have none.
template <bool runs, class Id, class Index>
void fill_values(Refs refs, const Index* lengths, const Index* offsets, Id* values, float* weights) {
  const int64_t count = std::ssize(refs);
  for (int64_t i = 0; i < count; ++i) {
    const SampleRef& ref = refs[static_cast<size_t>(i)];
    const Examples& e = *ref.examples;
    const auto fill = [&]<class From>(const From* from, auto* to) {
      fill_sample<runs>(from, reinterpret_cast<const From*>(e.end()), i, count, e.num_columns(), lengths, offsets, to);
    };
    e.wide() ? fill(e.ids<int64_t>(ref.index), values) : fill(e.ids<int32_t>(ref.index), values);
    if (weights != nullptr) fill(e.weights(ref.index), weights);
  }
}

// This many samples are transposed together, so that they write whole cache lines of each column. One sample at a time
// would keep one line per column in use. These are often a power of two apart, and the first-level cache holds few such
// lines.
constexpr int64_t kTogether = 16;

// Sets to[k * count + i] = begin_of(refs[i])[k]; the batch has `count` samples.
template <class Begin, class To>
void transpose(Refs refs, int64_t count, int64_t keys, const Begin& begin_of, To* to) {
  std::array<decltype(begin_of(refs[0])), kTogether> from;
  std::transform(refs.begin(), refs.end(), from.begin(), begin_of);
  for (int64_t k = 0; k < keys; ++k, to += count) {
    for (size_t i = 0; i < refs.size(); ++i) to[i] = static_cast<To>(from[i][k]);
  }
}

// Does the same as fill_values() if each bag has one id.
template <class Id>
void fill_single(Refs refs, int64_t keys, Id* values, float* weights) {
  const int64_t count = std::ssize(refs);
  for (int64_t first = 0; first < count;) {
    const bool wide = refs[static_cast<size_t>(first)].examples->wide();
    int64_t n = 1;
    while (n < std::min(kTogether, count - first) && refs[static_cast<size_t>(first + n)].examples->wide() == wide) ++n;
    const Refs part = refs.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
    const auto ids = [&]<class From>(From) {
      transpose(
          part, count, keys, [](const SampleRef& r) { return r.examples->ids<From>(r.index); }, values + first);
    };
    wide ? ids(int64_t{}) : ids(int32_t{});
    if (weights != nullptr) {
      transpose(
          part, count, keys, [](const SampleRef& r) { return r.examples->weights(r.index); }, weights + first);
    }
    first += n;
  }
}

}  // namespace

Tensor Batch::label(size_t which) const {
  if (which == 0) return labels;
  return further_labels.narrow(static_cast<int64_t>(which) - 1, 1).reshape({labels.numel()});
}

int64_t Samples::size() const { return kept ? kept->size() : streamed ? streamed->size() : 0; }

ExamplesPtr Samples::some() const {
  constexpr int64_t kSome = 8192;
  return streamed ? streamed->some(kSome) : kept;
}

void Dataset::require_known_ids() const {
  for (const Samples& part : {train, test}) {
    if (part.kept && !part.kept->bad_id().empty()) fail(Code::kInvalidArgument, part.kept->bad_id());
    if (part.streamed) part.streamed->require_known_ids();
  }
}

BatchReader::BatchReader(Samples samples, BatchReaderOptions options)
    : samples_(std::move(samples)), options_(options) {
  TESSERA_CHECK(samples_.kept || samples_.streamed);
  if (samples_.streamed) cursor_ = std::make_unique<data::SampleCursor>(samples_.streamed, options_);
  if (options_.batch < 1) fail(Code::kInvalidArgument, "a batch of ", options_.batch, " samples is not possible");
  if (options_.world_size < 1 || options_.rank < 0 || options_.rank >= options_.world_size) {
    fail(Code::kInvalidArgument, "rank ", options_.rank, " is not one of ", options_.world_size);
  }
  start_epoch(0);
}

void BatchReader::start_epoch(int64_t epoch) {
  position_ = 0;
  if (cursor_) return cursor_->start_epoch(epoch);
  if (options_.shuffle)
    order_ =
        sdk::shuffled(static_cast<size_t>(samples_.size()), sdk::combine(options_.seed, static_cast<uint64_t>(epoch)));
}

BatchReader::~BatchReader() = default;
BatchReader::BatchReader(BatchReader&&) noexcept = default;
BatchReader& BatchReader::operator=(BatchReader&&) noexcept = default;

int64_t BatchReader::batches() const { return (samples_.size() + options_.batch - 1) / options_.batch; }

int64_t BatchReader::first_sample(int64_t batch) const {
  const int64_t n = batches(), size = samples_.size();
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
  if (cursor_) {
    cursor_->take(start, start + global, refs_);
  } else {
    refs_.clear();
    const int64_t end = start + global * (options_.rank + 1) / options_.world_size;
    for (int64_t i = start + global * options_.rank / options_.world_size; i < end; ++i)
      refs_.push_back({samples_.kept.get(), order_.empty() ? i : int64_t{order_[static_cast<size_t>(i)]}});
  }
  batch.global_size = global;
  fill(batch);
  return true;
}

// Fills further labels and sample weights.
void BatchReader::fill_labels(Batch& batch) const {
  const data::LabelForm& form = (samples_.kept ? *samples_.kept : samples_.streamed->form()).label_form();
  const int64_t count = std::ssize(refs_), further = static_cast<int64_t>(form.labels) - 1;
  batch.further_labels = batch.sample_weights = {};
  if (further > 0) batch.further_labels = take(batch.buffers_.further_labels, {further, count}, DType::kFloat32);
  if (form.weighted) batch.sample_weights = take(batch.buffers_.sample_weights, {count}, DType::kFloat32);
  for (int64_t i = 0; i < count; ++i) {
    const SampleRef& ref = refs_[static_cast<size_t>(i)];
    for (int64_t k = 0; k < further; ++k)
      batch.further_labels.data<float>()[k * count + i] = ref.examples->label(ref.index, static_cast<size_t>(k) + 1);
    if (form.weighted) batch.sample_weights.data<float>()[i] = ref.examples->sample_weight(ref.index);
  }
}

void BatchReader::fill(Batch& batch) const {
  const Refs refs = refs_;
  const Examples& form = samples_.kept ? *samples_.kept : samples_.streamed->form();
  const int64_t count = std::ssize(refs), inputs = form.num_dense(), bags = form.num_columns() * count;
  batch.dense = take(batch.buffers_.dense, {count, inputs}, DType::kFloat32);
  batch.labels = take(batch.buffers_.labels, {count}, DType::kFloat32);
  float* dense = batch.dense.data<float>();
  int64_t ids = 0;
  bool wide = form.wide(), single = true;
  const int64_t lines = refs.empty() ? 0 : refs.front().examples->lines();
  for (int64_t i = -2 * kAhead; i < count; ++i) {
    if (i + 2 * kAhead < count) {
      const SampleRef& later = refs[static_cast<size_t>(i + 2 * kAhead)];
      later.examples->expect_place(later.index);
    }
    if (i + kAhead >= 0 && i + kAhead < count) {
      const SampleRef& soon = refs[static_cast<size_t>(i + kAhead)];
      soon.examples->expect(soon.index, lines);
    }
    if (i < 0) continue;
    const SampleRef& ref = refs[static_cast<size_t>(i)];
    const float* values = ref.examples->dense(ref.index);
    for (int64_t k = 0; k < inputs; ++k) dense[i * inputs + k] = values[k];
    batch.labels.data<float>()[i] = ref.examples->label(ref.index);
    ids += ref.examples->num_ids(ref.index);
    wide = wide || ref.examples->wide();
    single = single && ref.examples->lengths(ref.index) == nullptr;
  }

  fill_labels(batch);

  const DType index_type = ids > std::numeric_limits<int32_t>::max() ? DType::kInt64 : DType::kInt32;
  const Tensor values = take(batch.buffers_.values, {ids}, wide ? DType::kInt64 : DType::kInt32);
  const Tensor lengths = take(batch.buffers_.lengths, {bags}, index_type);
  const Tensor offsets = take(batch.buffers_.offsets, {bags + 1}, index_type);
  const Tensor weights = form.weighted() ? take(batch.buffers_.weights, {ids}, DType::kFloat32) : Tensor();
  const auto fill_as = [&](auto* id, auto* index) {
    using Index = std::remove_pointer_t<decltype(index)>;
    using Id = std::remove_pointer_t<decltype(id)>;
    float* const weight = weights.defined() ? weights.data<float>() : nullptr;
    if (single) {
      std::fill_n(lengths.data<Index>(), bags, Index{1});
      std::iota(offsets.data<Index>(), offsets.data<Index>() + bags + 1, Index{0});
      return fill_single(refs, form.num_columns(), values.data<Id>(), weight);
    }
    fill_lengths(refs, form.num_columns(), lengths.data<Index>(), offsets.data<Index>());
    const auto fill = ids >= data::kRunsFrom * bags ? fill_values<true, Id, Index> : fill_values<false, Id, Index>;
    fill(refs, lengths.data<Index>(), offsets.data<Index>(), values.data<Id>(), weight);
  };
  constexpr int32_t* kNarrow = nullptr;
  constexpr int64_t* kWide = nullptr;
  if (index_type == DType::kInt32)
    wide ? fill_as(kWide, kNarrow) : fill_as(kNarrow, kNarrow);
  else
    wide ? fill_as(kWide, kWide) : fill_as(kNarrow, kWide);
  batch.sparse = KeyedJaggedTensor({.keys = form.keys(),
                                    .values = values,
                                    .weights = weights,
                                    .lengths = lengths,
                                    .offsets = offsets,
                                    .stride = count});
}

}  // namespace tessera
