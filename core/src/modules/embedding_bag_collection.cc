#include <algorithm>
#include <utility>

#include "modules/embedding_tables.h"
#include "sparse/arrays.h"

namespace tessera {
namespace {

// Returns each feature's first column in the output, and the end.
std::vector<int64_t> columns_of(const std::vector<int64_t>& dims) { return sparse::cumulative(dims); }

// Writes the output: row b of feature f is row from[f][b] of the feature's part of `pooled`.
void gather_rows(const EmbeddingContext::State& state, const std::vector<int64_t>& dims, const Tensor& pooled,
                 const Tensor& out) {
  const std::vector<int64_t> column = columns_of(dims);
  const int64_t batch = out.size(0), width = out.size(1);
  for (size_t f = 0; f < dims.size(); ++f) {
    const int64_t* from = state.gather[f].data<int64_t>();
    const float* part = pooled.data<float>() + state.row_begin[f];
    for (int64_t b = 0; b < batch; ++b) {
      std::copy_n(part + from[b] * dims[f], dims[f], out.data<float>() + b * width + column[f]);
    }
  }
}

// Does the reverse for gradients: a row that several samples use gets their sum.
Tensor scatter_rows(const EmbeddingContext::State& state, const std::vector<int64_t>& dims, const Tensor& grad) {
  const std::vector<int64_t> column = columns_of(dims);
  Tensor pooled = Tensor::zeros({state.row_begin.back()});
  const int64_t batch = grad.size(0), width = grad.size(1);
  for (size_t f = 0; f < dims.size(); ++f) {
    const int64_t* to = state.gather[f].data<int64_t>();
    float* part = pooled.data<float>() + state.row_begin[f];
    for (int64_t b = 0; b < batch; ++b) {
      const float* in = grad.data<float>() + b * width + column[f];
      float* sum = part + to[b] * dims[f];
      for (int64_t d = 0; d < dims[f]; ++d) sum[d] += in[d];
    }
  }
  return pooled;
}

// Returns the feature's row in inverse.indices. Checks it against the number of the feature's samples.
Tensor gather_of(const KeyedJaggedTensor::InverseIndices& inverse, const std::string& feature, int64_t samples) {
  const auto key = std::find(inverse.keys.begin(), inverse.keys.end(), feature);
  if (key == inverse.keys.end()) {
    fail(Code::kNotFound, "the batch has inverse indices, but none for feature \"", feature, "\"");
  }
  Tensor row = inverse.indices.to(DType::kInt64).narrow(key - inverse.keys.begin(), 1).reshape({-1});
  for (int64_t i : row.span<int64_t>()) {
    if (i < 0 || i >= samples) {
      fail(Code::kOutOfRange, "feature \"", feature, "\" has the inverse index ", i, ", but only ", samples,
           " samples");
    }
  }
  return row;
}

}  // namespace

EmbeddingBagCollection::EmbeddingBagCollection(const Runtime& runtime, CollectionOptions options)
    : EmbeddingTables(runtime, std::move(options), "embedding_bags") {
  for (const EmbeddingBagConfig& t : tables()) {
    if (t.pooling != PoolingType::kSum && t.pooling != PoolingType::kMean) {
      fail(Code::kInvalidArgument, "table \"", t.name, "\" has pooling ", to_string(t.pooling),
           ": an EmbeddingBagCollection pools by SUM or MEAN");
    }
    if (this->options().is_weighted && t.pooling == PoolingType::kMean) {
      fail(Code::kInvalidArgument, "table \"", t.name, "\" pools by MEAN, which a weighted collection does not do");
    }
  }
}

KeyedTensor EmbeddingBagCollection::forward(const KeyedJaggedTensor& features, EmbeddingContext* context) {
  std::unique_ptr<EmbeddingContext::State> state = impl().start(features, false);
  std::vector<int64_t> dims;
  for (const auto& table_feature : impl().table_features) dims.push_back(tables()[table_feature.table].embedding_dim);
  const std::vector<int64_t> column = columns_of(dims);

  const KeyedJaggedTensor::InverseIndices* inverse = features.inverse_indices_or_null();
  const int64_t batch = inverse != nullptr ? inverse->indices.size(-1) : features.stride();
  state->row_begin.push_back(0);
  for (size_t f = 0; f < dims.size(); ++f) {
    const int64_t bags = state->ids.features[f].bags;
    state->row_begin.push_back(state->row_begin.back() + bags * dims[f]);
    if (inverse != nullptr) {
      state->gather.push_back(gather_of(*inverse, impl().table_features[f].feature, bags));
    } else if (bags != batch) {
      fail(Code::kInvalidArgument, "feature \"", impl().table_features[f].feature, "\" has ", bags,
           " samples, the batch ", batch, ": features of different batch sizes need inverse indices");
    }
  }
  for (size_t f = 0; f < dims.size(); ++f) {
    const auto& place = impl().states[impl().table_features[f].table];
    const int64_t offset = inverse != nullptr ? state->row_begin[f] : column[f];
    const int64_t stride = inverse != nullptr ? dims[f] : column.back();
    state->calls[place.group].batch.add(place.index, state->ids.features[f], offset, stride);
  }
  const Tensor values = Tensor::empty({batch, column.back()});
  const Tensor pooled = inverse != nullptr ? Tensor::empty({state->row_begin.back()}) : values;
  for (auto& call : state->calls) {
    call.lookup->forward(call.batch.view(), pooled, context != nullptr ? &call.context : nullptr);
  }
  if (inverse != nullptr) gather_rows(*state, dims, pooled, values);
  for (size_t f = 0; f < dims.size(); ++f) {
    if (tables()[impl().table_features[f].table].data_type != DType::kFloat16) continue;
    for (int64_t b = 0; b < batch; ++b) {
      round_to_half(values.data<float>() + b * column.back() + column[f], dims[f]);
    }
  }
  state->output_shape = values.shape();
  if (context != nullptr) context->state_ = std::move(state);
  return KeyedTensor(embedding_names(), dims, values);
}

EmbeddingGradients EmbeddingBagCollection::backward(EmbeddingContext context, const Tensor& grad_output) {
  EmbeddingContext::State* state = context.state_.get();
  require_context(state, &impl(), impl().generation);
  require_gradient(grad_output, state->output_shape, "grad_output");
  if (state->gather.empty()) return impl().finish(*state, grad_output);
  std::vector<int64_t> dims;
  for (const auto& table_feature : impl().table_features) dims.push_back(tables()[table_feature.table].embedding_dim);
  return impl().finish(*state, scatter_rows(*state, dims, grad_output));
}

}  // namespace tessera
