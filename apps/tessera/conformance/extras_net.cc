#include "conformance/extras_net.h"

#include "conformance/embedding_modules.h"

namespace tessera::cli {

Net::Node Net::input(const Tensor& value) {
  nodes_.emplace_back().value = value.dim() > 2 ? value.reshape({value.size(0), -1}) : value;
  return nodes_.size() - 1;
}

Net::Node Net::embeddings(const json& tables, const json& features, const std::string& prefix) {
  CollectionOptions options;
  options.tables = table_configs_from(tables, true);
  options.kernel = c_.kernel;
  Item& item = nodes_.emplace_back();
  item.tables = std::make_unique<EmbeddingBagCollection>(c_.runtime, std::move(options));
  item.prefix = prefix;
  for (const json& t : tables) {
    const auto table = t.at("name").get<std::string>();
    item.tables->set_weight(table, tensor_from(c_.given.at("params").at(prefix + table + ".weight")));
  }
  item.features = kjt_from(features);
  item.value = item.tables->forward(item.features, &item.context).values();
  return nodes_.size() - 1;
}

Net::Node Net::layer(const std::string& layer, json options, const std::vector<Node>& inputs,
                     const std::vector<Name>& names) {
  json widths = json::array();
  for (const Node n : inputs) widths.push_back(width(n));
  options["inputs"] = widths;
  DenseLayerOptions made;
  made.module = layer;
  made.options = options.dump();
  made.name = "layer";
  Item item;
  item.layer = std::make_unique<DenseLayer>(c_.runtime, std::move(made));
  item.inputs = inputs;
  for (const Name& n : names) item.names.emplace_back(std::regex(n.torch), n.own);
  item.value = Tensor::empty({0, item.layer->output_width(widths.get<std::vector<int64_t>>())});
  nodes_.push_back(std::move(item));
  return nodes_.size() - 1;
}

Net::Found Net::find(const std::string& name) const {
  for (const Item& item : nodes_) {
    for (const auto& [torch, own] : item.names) {
      std::smatch match;
      if (!std::regex_match(name, match, torch)) continue;
      std::string wanted = "layer." + match.format(own);
      int64_t row = -1;
      if (const size_t at = wanted.find('['); at != std::string::npos) {
        row = std::stoll(wanted.substr(at + 1));
        wanted.resize(at);
      }
      for (const ParameterPtr& p : item.layer->parameters()) {
        if (p->name != wanted) continue;
        return row < 0 ? Found{p->value, p->grad} : Found{p->value.narrow(row, 1), p->grad.narrow(row, 1)};
      }
      fail(Code::kNotFound, "no layer has the parameter ", wanted, " for ", name);
    }
  }
  fail(Code::kNotFound, "nothing here is called ", name);
}

Tensor Net::forward() {
  for (const auto& [name, value] : c_.given.at("params").items()) {
    bool of_table = false;
    for (const Item& item : nodes_) of_table |= item.tables && name.starts_with(item.prefix);
    if (of_table) continue;
    const Tensor from = tensor_from(value), to = find(name).value;
    if (from.numel() != to.numel()) fail(Code::kInvalidArgument, name, " has another size here");
    std::copy_n(from.data<float>(), from.numel(), to.data<float>());
  }
  for (Item& item : nodes_) {
    if (!item.layer) continue;
    std::vector<Tensor> inputs;
    for (const Node n : item.inputs) inputs.push_back(nodes_[n].value);
    item.value = item.layer->forward(inputs, true);
  }
  return nodes_.back().value;
}

void Net::backward(const Tensor& grad) {
  for (Item& item : nodes_) item.grad = Tensor::zeros(item.value.shape());
  nodes_.back().grad = grad.reshape(nodes_.back().value.shape());
  for (size_t i = nodes_.size(); i-- > 0;) {
    Item& item = nodes_[i];
    if (item.tables) {
      const EmbeddingGradients made = item.tables->backward(std::move(item.context), item.grad);
      for (const TableGradient& t : made.tables)
        table_grads_.emplace_back(item.prefix + t.table + ".weight", t.dense());
    }
    if (!item.layer) continue;
    const std::vector<Tensor> grads = item.layer->backward(item.grad);
    for (size_t k = 0; k < grads.size(); ++k) {
      const Tensor& sum = nodes_[item.inputs[k]].grad;
      for (int64_t e = 0; e < sum.numel(); ++e) sum.data<float>()[e] += grads[k].data<float>()[e];
    }
  }
  for (const auto& [name, want] : c_.expect.at("param_grads").items()) {
    const auto table =
        std::find_if(table_grads_.begin(), table_grads_.end(), [&](const auto& t) { return t.first == name; });
    const Tensor got = table != table_grads_.end() ? table->second : find(name).grad;
    c_.check.tensor("param_grads." + name, want, got.reshape(want.at("shape").get<std::vector<int64_t>>()));
  }
}

}  // namespace tessera::cli
