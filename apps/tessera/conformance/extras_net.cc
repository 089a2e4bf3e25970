#include "conformance/extras_net.h"

#include <algorithm>

#include "conformance/embedding_modules.h"

namespace tessera::cli {
namespace {

// Copies columns [first, first + to.size(1)) of the rows of `from` into `to`, or the other way round.
void copy_columns(const Tensor& wide, int64_t first, const Tensor& narrow, bool to_wide) {
  const int64_t width = narrow.size(1);
  for (int64_t s = 0; s < narrow.size(0); ++s) {
    float* a = wide.data<float>() + s * wide.size(1) + first;
    float* b = narrow.data<float>() + s * width;
    to_wide ? std::copy_n(b, width, a) : std::copy_n(a, width, b);
  }
}

}  // namespace

Net::Node Net::input(const Tensor& value) {
  inputs_.push_back(value.reshape({value.size(0), -1}));
  const int64_t width = inputs_.back().size(1);
  graph_.inputs.push_back({str_cat("input_", inputs_.size()), GraphInput::kPooled, graph_.pooled_width, width});
  graph_.pooled_width += width;
  return graph_.inputs.back().name;
}

Net::Node Net::embeddings(const json& tables, const json& features, const std::string& prefix) {
  CollectionOptions options{.tables = table_configs_from(tables, true), .kernel = c_.kernel};
  Tables& made = tables_.emplace_back();
  made.prefix = prefix;
  made.collection = std::make_unique<EmbeddingBagCollection>(c_.runtime, std::move(options));
  for (const json& t : tables) {
    const auto table = t.at("name").get<std::string>();
    made.collection->set_weight(table, tensor_from(c_.given.at("params").at(prefix + table + ".weight")));
  }
  made.input = input(made.collection->forward(kjt_from(features), &made.context).values());
  return made.input;
}

Net::Node Net::layer(const std::string& type, const json& options, const std::vector<Node>& inputs,
                     const std::vector<Name>& names) {
  std::string name = str_cat("layer_", graph_.layers.size());
  graph_.layers.push_back({name, type, inputs, options.dump()});
  for (const Name& n : names) names_.emplace_back(std::regex(n.torch), str_cat(name, ".", n.own));
  return name;
}

Net::Found Net::find(const std::string& name) const {
  std::string own;
  for (auto at = names_.begin(); own.empty() && at != names_.end(); ++at) {
    std::smatch match;
    if (std::regex_match(name, match, at->first)) own = match.format(at->second);
  }
  const size_t bracket = std::min(own.find('['), own.size());
  for (const ParameterPtr& p : model_->parameters()) {
    if (own.empty() || p->name != own.substr(0, bracket)) continue;
    if (bracket == own.size()) return {p->value, p->grad};
    const int64_t row = std::stoll(own.substr(bracket + 1));
    return {p->value.narrow(row, 1), p->grad.narrow(row, 1)};
  }
  fail(Code::kNotFound, "no layer has a parameter for ", name);
}

const GraphInput& Net::columns(const Node& input) const {
  return *std::find_if(graph_.inputs.begin(), graph_.inputs.end(), [&](const auto& i) { return i.name == input; });
}

Tensor Net::forward() {
  graph_.heads = {{"out", graph_.layers.back().name}};
  model_.emplace(c_.runtime, graph_, LayerGraphOptions{});
  for (const auto& [name, value] : c_.given.at("params").items()) {
    if (std::any_of(tables_.begin(), tables_.end(), [&](const Tables& t) { return name.starts_with(t.prefix); }))
      continue;
    const Tensor from = tensor_from(value), to = find(name).value;
    if (from.numel() != to.numel()) fail(Code::kInvalidArgument, name, " has another size here");
    std::copy_n(from.data<float>(), from.numel(), to.data<float>());
  }
  const int64_t batch = inputs_.at(0).size(0);
  dense_ = Tensor::zeros({batch, 0});
  pooled_ = Tensor::empty({batch, graph_.pooled_width});
  for (size_t i = 0; i < inputs_.size(); ++i) copy_columns(pooled_, graph_.inputs[i].column, inputs_[i], true);
  return model_->forward(dense_, pooled_, true).at(0);
}

void Net::backward(const Tensor& grad) {
  grad_pooled_ = model_->backward({grad.reshape({inputs_.at(0).size(0), -1})});
  std::vector<std::pair<std::string, Tensor>> of_tables;
  for (Tables& t : tables_) {
    const EmbeddingGradients grads = t.collection->backward(std::move(t.context), gradient(t.input));
    for (const TableGradient& g : grads.tables) of_tables.emplace_back(t.prefix + g.table + ".weight", g.dense());
  }
  for (const auto& [name, want] : c_.expect.at("param_grads").items()) {
    const auto table = std::find_if(of_tables.begin(), of_tables.end(),
                                    [&, &wanted = name](const auto& t) { return t.first == wanted; });
    const Tensor got = table != of_tables.end() ? table->second : find(name).grad;
    c_.check.tensor("param_grads." + name, want, got.reshape(want.at("shape").get<std::vector<int64_t>>()));
  }
}

Tensor Net::gradient(const Node& input) const {
  const GraphInput& from = columns(input);
  Tensor out = Tensor::empty({grad_pooled_.size(0), from.width});
  copy_columns(grad_pooled_, from.column, out, false);
  return out;
}

}  // namespace tessera::cli
