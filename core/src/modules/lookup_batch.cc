#include "modules/lookup_batch.h"

#include "sparse/arrays.h"

namespace tessera {
namespace {

// Splits sequences with dropped ids into bags of one id or none, so that a dropped id gives a row of zeros.
void split_sequences(const CheckedIds& checked, const BoundsInput& input, LookupIds& out) {
  std::vector<int64_t> offsets{0};
  const int64_t* kept_offsets = checked.offsets.data<int64_t>();
  const int64_t* positions = checked.positions.data<int64_t>();
  const int64_t* lengths = checked.lengths.data<int64_t>();
  for (size_t f = 0; f < out.features.size(); ++f) {
    LookupIds::Feature& feature = out.features[f];
    const int64_t first = checked.first_bag[f], bags = input.features[f].bags;
    feature.first_offset = static_cast<int64_t>(offsets.size()) - 1;
    feature.rows = 0;
    for (int64_t bag = first; bag < first + bags; ++bag) feature.rows += lengths[bag];
    int64_t kept = kept_offsets[first];
    const int64_t kept_end = kept_offsets[first + bags];
    for (int64_t row = 0; row < feature.rows; ++row) {
      if (kept < kept_end && positions[kept] == checked.begin[f] + row) ++kept;
      offsets.push_back(kept);
    }
    feature.bags = feature.rows;
    feature.pooling = PoolingType::kSum;
  }
  out.offsets = Tensor::from(offsets);
}

// Computes the mean of a bag that lost ids as a weighted sum. The weights are 1 / the bag's original length.
void weigh_means(const CheckedIds& checked, LookupIds& out) {
  for (size_t f = 0; f < out.features.size(); ++f) {
    LookupIds::Feature& feature = out.features[f];
    if (feature.pooling != PoolingType::kMean || checked.dropped[f] == 0) continue;
    if (!out.weights.defined()) {
      out.weights = Tensor::empty({out.ids.numel()});
      out.weights.fill(1);
    }
    const int64_t* offsets = checked.offsets.data<int64_t>() + checked.first_bag[f];
    const int64_t* lengths = checked.lengths.data<int64_t>() + checked.first_bag[f];
    float* weights = out.weights.data<float>();
    for (int64_t bag = 0; bag < feature.bags; ++bag) {
      for (int64_t p = offsets[bag]; p < offsets[bag + 1]; ++p) weights[p] /= static_cast<float>(lengths[bag]);
    }
    feature.pooling = PoolingType::kSum;
  }
}

}  // namespace

LookupIds make_lookup_ids(const BoundsInput& input, CheckedIds checked, const std::vector<PoolingType>& pooling) {
  LookupIds out;
  out.features.resize(input.features.size());
  const bool sequences = !pooling.empty() && pooling.front() == PoolingType::kNone;
  for (size_t f = 0; f < out.features.size(); ++f) {
    const BoundsFeature& in = input.features[f];
    TESSERA_CHECK((pooling[f] == PoolingType::kNone) == sequences);
    out.features[f] = {pooling[f], in.bags, checked.clean ? in.first_bag : checked.first_bag[f], in.bags};
  }
  if (checked.clean) {
    out.ids = input.ids;
    out.offsets = input.offsets;
    out.weights = input.weights;
    if (sequences) {
      for (size_t f = 0; f < out.features.size(); ++f) {
        const BoundsFeature& in = input.features[f];
        out.features[f].rows =
            sparse::integer_at(input.offsets, in.first_bag + in.bags) - sparse::integer_at(input.offsets, in.first_bag);
      }
    }
    return out;
  }
  out.ids = checked.ids;
  out.offsets = checked.offsets;
  out.weights = checked.weights;
  out.positions = checked.positions;
  if (sequences) {
    split_sequences(checked, input, out);
  } else {
    weigh_means(checked, out);
  }
  return out;
}

void LookupBatch::add(int table, const LookupIds::Feature& feature, int64_t output_offset, int64_t output_stride) {
  features_.push_back(
      {table, static_cast<int32_t>(feature.pooling), feature.bags, feature.first_offset, output_offset, output_stride});
}

void add_weight_gradients(const LookupIds& ids, const Tensor& looked_up, const Tensor& total) {
  const float* from = looked_up.data<float>();
  float* to = total.data<float>();
  if (!ids.positions.defined()) {
    for (int64_t i = 0; i < looked_up.numel(); ++i) to[i] += from[i];
    return;
  }
  const int64_t* positions = ids.positions.data<int64_t>();
  for (int64_t i = 0; i < looked_up.numel(); ++i) to[positions[i]] += from[i];
}

EmbeddingContext::EmbeddingContext() = default;
EmbeddingContext::EmbeddingContext(EmbeddingContext&&) noexcept = default;
EmbeddingContext& EmbeddingContext::operator=(EmbeddingContext&&) noexcept = default;
EmbeddingContext::~EmbeddingContext() = default;

}  // namespace tessera
