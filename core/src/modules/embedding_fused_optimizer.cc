#include "modules/embedding_fused_optimizer.h"

#include <algorithm>
#include <utility>

namespace tessera {

EmbeddingFusedOptimizer::EmbeddingFusedOptimizer(std::shared_ptr<Lookup> lookup, std::vector<Table> tables)
    : lookup_(std::move(lookup)), tables_(std::move(tables)) {
  for (const Table& t : tables_) {
    const LookupTable& shape = lookup_->options().tables.at(static_cast<size_t>(t.index));
    auto parameter = std::make_shared<Parameter>();
    parameter->name = t.key;
    parameter->value = Tensor::empty({shape.rows, shape.dim}, lookup_->options().weight_dtype, kMeta);
    parameter->in_backward = true;
    parameters_.push_back(std::move(parameter));
  }
}

std::vector<KeyedOptimizer::Item> EmbeddingFusedOptimizer::params() const {
  std::vector<Item> out;
  for (size_t i = 0; i < tables_.size(); ++i) out.push_back({tables_[i].key, parameters_[i]});
  return out;
}

std::vector<std::pair<std::string, OptimizerState>> EmbeddingFusedOptimizer::state() const {
  std::vector<std::pair<std::string, OptimizerState>> out;
  if (lookup_->states().empty()) return out;
  for (const Table& t : tables_) {
    OptimizerState state;
    for (size_t k = 0; k < lookup_->states().size(); ++k) {
      state.emplace_back(str_cat(t.name, ".", lookup_->states()[k].name), lookup_->state(t.index, static_cast<int>(k)));
    }
    out.emplace_back(t.key, std::move(state));
  }
  return out;
}

void EmbeddingFusedOptimizer::set_state(std::string_view key, const OptimizerState& state) {
  const auto table = std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.key == key; });
  if (table == tables_.end()) {
    fail(Code::kInvalidArgument, "there is state for \"", key, "\", which is not a parameter of this optimizer");
  }
  const LookupTable& shape = lookup_->options().tables[static_cast<size_t>(table->index)];
  const std::vector<Lookup::State>& states = lookup_->states();
  if (state.size() != states.size()) {
    fail(Code::kInvalidArgument, "parameter \"", key, "\" has ", states.size(), " states, but ", state.size(),
         " were given");
  }
  std::vector<const float*> values;
  for (const Lookup::State& s : states) {
    const std::string name = str_cat(table->name, ".", s.name);
    const auto given = std::find_if(state.begin(), state.end(), [&](const auto& e) { return e.first == name; });
    if (given == state.end()) fail(Code::kInvalidArgument, "parameter \"", key, "\" misses state \"", name, "\"");
    const int64_t count = s.per_row ? shape.rows : shape.rows * shape.dim;
    if (given->second.dtype() != DType::kFloat32 || given->second.numel() != count) {
      fail(Code::kInvalidArgument, "state \"", name, "\" must be float32 with ", count, " values, not ",
           to_string(given->second.dtype()), " with ", given->second.numel());
    }
    values.push_back(given->second.data<float>());
  }
  const Tensor weights = lookup_->weight(table->index);
  lookup_->write_rows(table->index, 0, shape.rows, weights.data<float>(), values);
}

std::vector<ParamGroup> EmbeddingFusedOptimizer::param_groups() const {
  ParamGroup group;
  for (const Table& t : tables_) group.params.push_back(t.key);
  group.options.emplace_back("lr", static_cast<double>(static_cast<float>(lookup_->learning_rate())));
  return {group};
}

void EmbeddingFusedOptimizer::set_option(size_t group, std::string_view option, double value) {
  TESSERA_CHECK(group == 0, "there is one group");
  if (option != "lr") {
    fail(Code::kInvalidArgument, "a fused optimizer has only the option \"lr\" to set, not \"", option, "\"");
  }
  lookup_->set_learning_rate(value);
}

}  // namespace tessera
