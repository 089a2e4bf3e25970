// Forward and backward of both kinds of collections: they check the batch, make one call per kernel instance, and
// return gradients.
#include <algorithm>
#include <utility>

#include "modules/embedding_tables.h"

namespace tessera {

std::unique_ptr<EmbeddingContext::State> EmbeddingTables::Impl::start(const KeyedJaggedTensor& batch, bool sequences) {
  require_rows();
  const std::vector<int64_t> strides = batch.stride_per_key(), first_bags = batch.lengths_offset_per_key();
  std::vector<BoundsFeature> features;
  std::vector<PoolingType> pooling;
  for (const TableFeature& table_feature : table_features) {
    const size_t key = static_cast<size_t>(batch.key_index(table_feature.feature));
    const EmbeddingBagConfig& table = options.tables[table_feature.table];
    features.push_back({table_feature.feature, table.name, table.id_bound(), first_bags[key], strides[key]});
    pooling.push_back(sequences ? PoolingType::kNone : table.pooling);
  }
  const bool weighted = options.is_weighted && !sequences;
  if (weighted && !batch.weights_or_null().defined()) {
    fail(Code::kInvalidArgument, "this collection is weighted, but the batch has no weights");
  }
  BoundsInput input{.ids = batch.values(), .offsets = batch.offsets()};
  if (weighted) input.weights = batch.weights();
  input.features = features;
  input.always_copy = weighted && key_shared;  // each use of an id needs its own place for the gradient of its weight
  CheckedIds checked = check_bounds(options.bounds_check, input);
  if (!checked.first.empty()) count_bad(checked);

  auto state = std::make_unique<EmbeddingContext::State>();
  state->owner = this;
  state->generation = generation;
  if (checked.bad_offsets > 0) state->repaired = checked;
  state->ids = make_lookup_ids(input, std::move(checked), pooling);
  state->input_weights = input.weights;
  for (size_t g = 0; g < groups.size(); ++g) {
    state->calls.push_back({groups[g].lookup, g, LookupBatch(state->ids), {}});
  }
  return state;
}

void EmbeddingTables::Impl::count_bad(const CheckedIds& checked) {
  for (size_t s = 0; s < table_features.size(); ++s) states[table_features[s].table].bad_ids += checked.bad[s];
  if (options.bounds_check != BoundsCheckMode::kWarning || warned) return;
  warned = true;
  const std::string text = str_cat(checked.first, "; it is repaired on a copy, and further ones are only counted");
  const tsr_host* host = runtime.host();
  host->log(host, TSR_LOG_WARNING, text.c_str());
}

void EmbeddingTables::Impl::update_dense(size_t table, const RowGradient& gradient) {
  TableState& state = states[table];
  Lookup& lookup = *groups[state.group].lookup;
  Parameter& parameter = *state.dense_parameter;
  const int64_t rows = parameter.value.size(0), dim = parameter.value.size(1);
  lookup.read_rows(state.index, 0, rows, parameter.value.data<float>());
  const int64_t* row = gradient.rows.data<int64_t>();
  const int64_t occurred = gradient.rows.numel();
  const float* values = gradient.values.data<float>();
  float* grad = parameter.grad.data<float>();
  for (int64_t i = 0; i < occurred; ++i) std::copy_n(values + i * dim, dim, grad + row[i] * dim);
  state.dense_optimizer->step();
  for (int64_t i = 0; i < occurred; ++i) std::fill_n(grad + row[i] * dim, dim, 0.0f);
  lookup.write_rows(state.index, 0, rows, parameter.value.data<float>());
}

EmbeddingGradients EmbeddingTables::Impl::finish(EmbeddingContext::State& state, const Tensor& grad) {
  EmbeddingGradients out;
  if (state.input_weights.defined()) {
    out.per_sample_weights = Tensor::zeros(state.input_weights.shape());
  }
  std::vector<std::pair<size_t, RowGradient>> by_table;
  for (EmbeddingContext::State::Call& call : state.calls) {
    Tensor weights;
    if (state.input_weights.defined()) weights = Tensor::zeros({state.ids.ids.numel()});
    const tsr_lookup lookup = call.batch.view();
    if (call.lookup->updates_in_backward()) {
      call.lookup->backward(std::move(call.context), lookup, grad, 1, weights);
    } else {
      std::vector<RowGradient> rows = call.lookup->backward_rows(std::move(call.context), lookup, grad, 1, weights);
      for (size_t i = 0; i < rows.size(); ++i) by_table.emplace_back(groups[call.group].tables[i], std::move(rows[i]));
    }
    if (weights.defined()) add_weight_gradients(state.ids, weights, out.per_sample_weights);
  }
  std::sort(by_table.begin(), by_table.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [t, rows] : by_table) {
    const EmbeddingBagConfig& table = options.tables[t];
    if (table.data_type == DType::kFloat16) round_to_half(rows.values.data<float>(), rows.values.numel());
    if (states[t].dense_optimizer) {
      update_dense(t, rows);
    } else {
      out.tables.push_back({table.name, table.data_type, table.num_embeddings, std::move(rows)});
    }
  }
  return out;
}

}  // namespace tessera
