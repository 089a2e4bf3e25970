#include <algorithm>
#include <utility>

#include "modules/embedding_tables.h"

namespace tessera {
namespace {

// Returns ids, lengths and offsets of feature f: the caller's, unless offsets were repaired.
JaggedTensor::Options input_of(const EmbeddingContext::State& state, const KeyedJaggedTensor& features,
                               const std::string& name, size_t f, int64_t rows) {
  JaggedTensor::Options out;
  if (!state.repaired) {
    const JaggedTensor input = features[name];
    out.values = input.values();
    out.lengths = input.lengths();
    out.offsets = input.offsets();
    return out;
  }
  const int64_t first = state.repaired->first_bag[f];
  const int64_t bags = features.stride_per_key()[static_cast<size_t>(features.key_index(name))];
  out.values = features.values().narrow(state.repaired->begin[f], rows);
  out.lengths = state.repaired->lengths.narrow(first, bags);
  return out;
}

}  // namespace

EmbeddingCollection::EmbeddingCollection(const Runtime& runtime, CollectionOptions options)
    : EmbeddingTables(runtime, std::move(options), "embeddings") {
  for (const EmbeddingBagConfig& t : tables()) {
    if (t.embedding_dim != tables().front().embedding_dim) {
      fail(Code::kInvalidArgument, "table \"", t.name, "\" has ", t.embedding_dim, " columns, table \"",
           tables().front().name, "\" has ", tables().front().embedding_dim,
           ": all tables of an EmbeddingCollection have equally many");
    }
  }
}

JaggedTensorDict EmbeddingCollection::forward(const KeyedJaggedTensor& features, EmbeddingContext* context) {
  std::unique_ptr<EmbeddingContext::State> state = impl().start(features, true);
  const int64_t dim = tables().empty() ? 0 : tables().front().embedding_dim;
  const size_t count = impl().table_features.size();
  state->row_begin.push_back(0);
  for (size_t f = 0; f < count; ++f) {
    const LookupIds::Feature& feature = state->ids.features[f];
    const auto& place = impl().states[impl().table_features[f].table];
    state->calls[place.group].batch.add(place.index, feature, state->row_begin[f] * dim, dim);
    state->row_begin.push_back(state->row_begin[f] + feature.rows);
  }
  const Tensor values = Tensor::empty({state->row_begin.back(), dim});
  for (auto& call : state->calls) {
    call.lookup->forward(call.batch.view(), values, context != nullptr ? &call.context : nullptr);
  }
  JaggedTensorDict out;
  for (size_t f = 0; f < count; ++f) {
    const int64_t rows = state->row_begin[f + 1] - state->row_begin[f];
    const Tensor part = values.narrow(state->row_begin[f], rows);
    if (tables()[impl().table_features[f].table].data_type == DType::kFloat16)
      round_to_half(part.data<float>(), part.numel());
    JaggedTensor::Options jagged = input_of(*state, features, impl().table_features[f].feature, f, rows);
    jagged.weights = options().need_indices ? jagged.values : Tensor();
    jagged.values = part;
    out.emplace_back(embedding_names()[f], JaggedTensor(std::move(jagged)));
  }
  state->output_shape = values.shape();
  if (context != nullptr) context->state_ = std::move(state);
  return out;
}

EmbeddingGradients EmbeddingCollection::backward(EmbeddingContext context, const std::vector<Tensor>& grad_outputs) {
  EmbeddingContext::State* state = context.state_.get();
  require_context(state, &impl(), impl().generation);
  if (grad_outputs.size() != impl().table_features.size()) {
    fail(Code::kInvalidArgument, "there are ", impl().table_features.size(), " outputs, but ", grad_outputs.size(),
         " gradients were given");
  }
  const Tensor grad = Tensor::zeros(state->output_shape);
  for (size_t f = 0; f < grad_outputs.size(); ++f) {
    if (!grad_outputs[f].defined()) continue;
    const Tensor part = grad.narrow(state->row_begin[f], state->row_begin[f + 1] - state->row_begin[f]);
    require_gradient(grad_outputs[f], part.shape(), embedding_names()[f].c_str());
    std::copy_n(grad_outputs[f].data<float>(), part.numel(), part.data<float>());
  }
  return impl().finish(*state, grad);
}

}  // namespace tessera
