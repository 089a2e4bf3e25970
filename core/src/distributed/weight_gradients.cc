// Computes gradients of the ids' weights: each id's row, looked up once more, times its bag's gradient.
#include <algorithm>
#include <vector>

#include "distributed/sharded_collection.h"
#include "sparse/arrays.h"
#include "tessera/sharded_modules.h"

namespace tessera {
namespace {

// Makes a bag for each id. Every key gets as many samples as the fullest one has ids; a key's samples after its own ids
// are empty.
KeyedJaggedTensor bag_per_id(const KeyedJaggedTensor& batch) {
  const std::vector<int64_t>& ids = batch.length_per_key();
  const int64_t samples = ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end());
  KeyedJaggedTensor::Options alone;
  alone.keys = batch.keys();
  alone.values = batch.values();
  alone.lengths = Tensor::zeros({static_cast<int64_t>(ids.size()) * samples}, DType::kInt32);
  for (size_t k = 0; k < ids.size(); ++k)
    std::fill_n(alone.lengths.data<int32_t>() + static_cast<int64_t>(k) * samples, ids[k], 1);
  alone.weights = Tensor::empty({batch.values().numel()});
  alone.weights.fill(1);
  alone.stride = samples;
  return KeyedJaggedTensor(std::move(alone));
}

// Null: no samples share rows.
const KeyedJaggedTensor::InverseIndices* inverse_of(const KeyedJaggedTensor& batch) {
  const auto* inverse = batch.inverse_indices_or_null();
  return inverse != nullptr && inverse->indices.numel() > 0 ? inverse : nullptr;
}

// kInvalidArgument: the reason why there are no gradients of weights for these arguments.
void check(const KeyedJaggedTensor& batch, const Tensor& grad, int64_t width) {
  const auto* inverse = inverse_of(batch);
  if (inverse == nullptr && batch.variable_stride_per_key())
    fail(Code::kInvalidArgument, "a batch with a variable number of samples per feature needs inverse indices");
  if (inverse != nullptr && (inverse->indices.dim() != 2 || inverse->indices.dtype() != DType::kInt64))
    fail(Code::kInvalidArgument, "inverse indices are int64 [keys, batch]");
  const int64_t samples = inverse == nullptr ? batch.stride() : inverse->indices.size(1);
  if (grad.dim() != 2 || grad.size(0) != samples || grad.size(1) != width || grad.dtype() != DType::kFloat32 ||
      grad.device() != kCpu)
    fail(Code::kInvalidArgument, "the gradient must be float32 [", samples, ", ", width, "] in host memory");
  if (inverse == nullptr) return;
  const std::vector<int64_t> strides = batch.stride_per_key();
  for (size_t k = 0; k < strides.size(); ++k) {
    const int64_t row = sparse::position_of(batch.keys()[k], inverse->keys);
    for (int64_t b = 0; b < samples; ++b) {
      const int64_t at = sparse::integer_at(inverse->indices, row * samples + b);
      if (at < 0 || at >= strides[k])
        fail(Code::kInvalidArgument, "an inverse index of feature ", batch.keys()[k], " is ", at, ", and it has ",
             strides[k], " samples");
    }
  }
}

// Gradients of a feature's bags, for the columns of one output: `step` values from bag to bag.
struct BagGradients {
  const float* at;
  int64_t step;
};

// Returns a gradient for each distinct sample of the feature: the sum over the samples that it stands for. `sums` holds
// them.
BagGradients bag_gradients(const KeyedJaggedTensor& batch, const TableFeature& table_feature, const Tensor& grad,
                           std::vector<float>& sums) {
  const int64_t width = grad.size(1);
  const float* from = grad.data<float>() + table_feature.col;
  const auto* inverse = inverse_of(batch);
  if (inverse == nullptr) return {from, width};
  const int64_t samples = grad.size(0), row = sparse::position_of(table_feature.feature, inverse->keys);
  const int64_t own = batch.stride_per_key()[static_cast<size_t>(batch.key_index(table_feature.feature))];
  sums.assign(static_cast<size_t>(own * table_feature.dim), 0);
  for (int64_t b = 0; b < samples; ++b) {
    float* to = sums.data() + sparse::integer_at(inverse->indices, row * samples + b) * table_feature.dim;
    for (int64_t d = 0; d < table_feature.dim; ++d) to[d] += from[b * width + d];
  }
  return {sums.data(), table_feature.dim};
}

}  // namespace

Tensor ShardedEmbeddingBagCollection::weight_gradients(const KeyedJaggedTensor& batch, const Tensor& grad) {
  if (!impl_->options().is_weighted)
    fail(Code::kFailedPrecondition, "only collections whose ids have weights (is_weighted) have gradients of weights");
  if (impl_->options().stream)
    fail(Code::kUnimplemented, "gradients of weights are not computed if the tables are on a device");
  const int64_t width = impl_->wiring().output_width();
  try {
    check(batch, grad, width);
  } catch (const Error& e) {
    refuse_batch(e.what());
  }
  const Tensor rows = forward(bag_per_id(batch), false, false).wait().values.values();
  Tensor out = Tensor::zeros({batch.values().numel()});
  std::vector<float> sums;
  for (const TableFeature& table_feature : impl_->wiring().table_features()) {
    const auto key = static_cast<size_t>(batch.key_index(table_feature.feature));
    const auto [bags, step] = bag_gradients(batch, table_feature, grad, sums);
    const int64_t first_bag = batch.lengths_offset_per_key()[key], num_bags = batch.stride_per_key()[key];
    const float* row = rows.data<float>() + table_feature.col;
    float* to = out.data<float>() + batch.offset_per_key()[key];
    for (int64_t bag = 0; bag < num_bags; ++bag) {
      const int64_t ids = sparse::integer_at(batch.lengths(), first_bag + bag);
      const double divisor = table_feature.pooling == PoolingType::kMean ? static_cast<double>(ids) : 1;
      for (int64_t i = 0; i < ids; ++i, ++to, row += width) {
        double sum = 0;
        for (int64_t d = 0; d < table_feature.dim; ++d) sum += static_cast<double>(row[d]) * bags[bag * step + d];
        *to += static_cast<float>(sum / divisor);
      }
    }
  }
  return out;
}

}  // namespace tessera
