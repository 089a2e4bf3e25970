#include "modules/embedding_tables.h"

#include <algorithm>
#include <set>
#include <utility>

#include "modules/embedding_fused_optimizer.h"

namespace tessera {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += str_cat(i ? ", " : "", shape[i]);
  return out + "]";
}

void require_gradient(const Tensor& grad, const std::vector<int64_t>& shape, const char* what) {
  if (grad.defined() && grad.dtype() == DType::kFloat32 && grad.shape() == shape) return;
  fail(Code::kInvalidArgument, what, " must be float32 ", shape_text(shape), ", as the output was, not ",
       to_string(grad.dtype()), " ", shape_text(grad.shape()));
}

void require_context(const EmbeddingContext::State* state, const void* owner, int64_t generation) {
  if (state == nullptr) fail(Code::kFailedPrecondition, "backward needs the context of a forward; this one is spent");
  TESSERA_CHECK(state->owner == owner, "the context is another module's");
  if (state->generation != generation) {
    fail(Code::kFailedPrecondition, "this context is from before apply_optimizer_in_backward: run forward again");
  }
}

void round_to_half(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = half_to_float(float_to_half(values[i]));
}

Tensor TableGradient::dense() const {
  const int64_t dim = rows.values.size(1);
  Tensor out = Tensor::zeros({num_embeddings, dim});
  const int64_t* row = rows.rows.data<int64_t>();
  for (int64_t i = 0; i < rows.rows.numel(); ++i) {
    std::copy_n(rows.values.data<float>() + i * dim, dim, out.data<float>() + row[i] * dim);
  }
  return out.to(data_type);
}

const TableGradient& EmbeddingGradients::table(std::string_view name) const {
  for (const TableGradient& t : tables) {
    if (t.table == name) return t;
  }
  fail(Code::kNotFound, "table \"", name, "\" has no gradient here: backward updated it, or there is no such table");
}

EmbeddingTables::Impl::Impl(const Runtime& r, CollectionOptions o, std::string p)
    : runtime(r), options(std::move(o)), prefix(std::move(p)) {
  options.tables = validated(std::move(options.tables));
  if (options.compute_kernel != TSR_COMPUTE_FUSED && options.compute_kernel != TSR_COMPUTE_DENSE) {
    fail(Code::kInvalidArgument, "compute_kernel \"", options.compute_kernel,
         "\" is not one of an unsharded module: use \"fused\" or \"dense\"");
  }
  for (EmbeddingBagConfig& t : options.tables) {
    if (t.optimizer.name.empty()) t.optimizer = options.optimizer;
  }
  names_by_table = tessera::embedding_names_by_table(options.tables);
  std::set<std::string> seen;
  for (size_t t = 0; t < options.tables.size(); ++t) {
    names.insert(names.end(), names_by_table[t].begin(), names_by_table[t].end());
    for (const std::string& feature : options.tables[t].feature_names) {
      table_features.push_back({t, feature});
      key_shared = !seen.insert(feature).second || key_shared;
    }
  }
  states.resize(options.tables.size());
  build();
}

size_t EmbeddingTables::Impl::index_of(std::string_view table) const {
  std::string known;
  for (size_t t = 0; t < options.tables.size(); ++t) {
    if (options.tables[t].name == table) return t;
    known += str_cat(t ? ", " : "", options.tables[t].name);
  }
  fail(Code::kNotFound, "there is no table \"", table, "\" in this collection, which has: ", known);
}

void EmbeddingTables::Impl::require_rows() const {
  if (options.device.type == DeviceType::kMeta) {
    fail(Code::kFailedPrecondition, "this collection is on the meta device: it describes tables but holds no rows");
  }
}

bool EmbeddingTables::Impl::in_backward(size_t table) const {
  if (states[table].dense_spec) return true;
  if (options.compute_kernel == TSR_COMPUTE_DENSE || !options.train) return false;
  return options.device.type == DeviceType::kMeta ? !hands_gradients_out(options.tables[table].optimizer)
                                                  : groups[states[table].group].lookup->updates_in_backward();
}

EmbeddingTables::EmbeddingTables(const Runtime& runtime, CollectionOptions options, std::string prefix)
    : impl_(std::make_unique<Impl>(runtime, std::move(options), std::move(prefix))) {}
EmbeddingTables::~EmbeddingTables() = default;

const CollectionOptions& EmbeddingTables::options() const { return impl_->options; }
const std::vector<EmbeddingBagConfig>& EmbeddingTables::tables() const { return impl_->options.tables; }
const Runtime& EmbeddingTables::runtime() const { return impl_->runtime; }
const std::vector<std::string>& EmbeddingTables::kernel_ids() const { return impl_->kernel_ids; }
const std::vector<std::string>& EmbeddingTables::embedding_names() const { return impl_->names; }
const std::vector<std::vector<std::string>>& EmbeddingTables::embedding_names_by_table() const {
  return impl_->names_by_table;
}
int64_t EmbeddingTables::table_index(std::string_view table) const {
  return static_cast<int64_t>(impl_->index_of(table));
}
int64_t EmbeddingTables::bad_ids(std::string_view table) const { return impl_->states[impl_->index_of(table)].bad_ids; }

std::vector<std::string> EmbeddingTables::state_dict_keys() const {
  std::vector<std::string> out;
  for (size_t t = 0; t < tables().size(); ++t) out.push_back(impl_->key(t));
  return out;
}

ParameterList EmbeddingTables::named_parameters() const {
  ParameterList out;
  for (size_t t = 0; t < tables().size(); ++t) {
    const EmbeddingBagConfig& table = tables()[t];
    auto parameter = std::make_shared<Parameter>();
    parameter->name = impl_->key(t);
    parameter->value = Tensor::empty({table.num_embeddings, table.embedding_dim}, table.data_type, kMeta);
    parameter->in_backward = impl_->in_backward(t);
    out.push_back(std::move(parameter));
  }
  return out;
}

EmbeddingTables::Place EmbeddingTables::place(std::string_view table) const {
  impl_->require_rows();
  const Impl::TableState& state = impl_->states[impl_->index_of(table)];
  return {impl_->groups[state.group].lookup, state.index};
}

Tensor EmbeddingTables::weight(std::string_view table) const {
  const Place at = place(table);
  return at.lookup->weight(at.table).to(tables()[static_cast<size_t>(table_index(table))].data_type);
}

void EmbeddingTables::set_weight(std::string_view table, const Tensor& value) {
  const Place at = place(table);
  const EmbeddingBagConfig& config = tables()[static_cast<size_t>(table_index(table))];
  if (value.shape() != std::vector<int64_t>{config.num_embeddings, config.embedding_dim}) {
    fail(Code::kInvalidArgument, "table \"", table, "\" is [", config.num_embeddings, ", ", config.embedding_dim,
         "], the weight given is ", shape_text(value.shape()));
  }
  at.lookup->set_weight(at.table, value);
}

void EmbeddingTables::apply_optimizer_in_backward(const OptimizerSpec& spec, const std::vector<std::string>& tables) {
  // Names and options are checked even on kMeta, where nothing is built.
  (void)runtime().create(TSR_OPTIMIZER_KIND, spec.name, spec.options);
  impl_->use_optimizer(spec, impl_->chosen(tables));
}

void EmbeddingTables::apply_optimizer_in_backward(const DenseOptimizerSpec& spec,
                                                  const std::vector<std::string>& tables) {
  const std::vector<size_t> chosen = impl_->chosen(tables);
  if (!options().train) fail(Code::kFailedPrecondition, "a collection that only infers takes no optimizer");
  (void)make_dense_optimizer(spec, {});  // refuses a bad name or option before anything changes
  impl_->use_optimizer(OptimizerSpec{}, chosen);
  for (size_t t : chosen) {
    Impl::TableState& state = impl_->states[t];
    state.dense_spec = spec;
    if (options().device.type == DeviceType::kMeta) continue;
    const std::vector<int64_t> shape{this->tables()[t].num_embeddings, this->tables()[t].embedding_dim};
    state.dense_parameter = std::make_shared<Parameter>();
    state.dense_parameter->name = impl_->key(t);
    state.dense_parameter->value = Tensor::empty(shape);
    state.dense_parameter->grad = Tensor::zeros(shape);
    state.dense_optimizer = make_dense_optimizer(spec, {state.dense_parameter});
  }
}

std::optional<DenseOptimizerSpec> EmbeddingTables::in_backward_optimizer(std::string_view table) const {
  const size_t t = impl_->index_of(table);
  if (impl_->states[t].dense_spec) return impl_->states[t].dense_spec;
  if (!impl_->in_backward(t)) return std::nullopt;
  return DenseOptimizerSpec{tables()[t].optimizer.name, tables()[t].optimizer.options};
}

std::shared_ptr<CombinedOptimizer> EmbeddingTables::fused_optimizer() const {
  std::vector<CombinedOptimizer::Member> members;
  for (const TableGroup& group : impl_->groups) {
    if (!group.lookup->updates_in_backward()) continue;
    std::vector<EmbeddingFusedOptimizer::Table> views;
    for (size_t i = 0; i < group.tables.size(); ++i) {
      const size_t t = group.tables[i];
      views.push_back({impl_->key(t), tables()[t].name, static_cast<int>(i)});
    }
    members.push_back({"", std::make_shared<EmbeddingFusedOptimizer>(group.lookup, std::move(views))});
  }
  return std::make_shared<CombinedOptimizer>(std::move(members));
}

void EmbeddingTables::apply(const std::vector<TableGradient>& gradients) {
  impl_->require_rows();
  std::set<size_t> stepped;
  for (const TableGradient& gradient : gradients) {
    if (impl_->groups[impl_->states[impl_->index_of(gradient.table)].group].options.optimizer.name.empty()) {
      fail(Code::kFailedPrecondition, "table \"", gradient.table, "\" has no optimizer that could apply its gradient");
    }
  }
  for (const TableGradient& gradient : gradients) {
    const Impl::TableState& state = impl_->states[impl_->index_of(gradient.table)];
    impl_->groups[state.group].lookup->apply(state.index, gradient.rows);
    stepped.insert(state.group);
  }
  for (size_t g : stepped) impl_->groups[g].lookup->count_step();
}

}  // namespace tessera
