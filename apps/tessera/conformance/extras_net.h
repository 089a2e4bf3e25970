// A small graph of layers for the cases of area "extras": values and gradients by TorchRec's names.
#pragma once

#include <deque>
#include <regex>
#include <string>
#include <vector>

#include "conformance/runner.h"
#include "tessera/dense.h"
#include "tessera/embedding_modules.h"

namespace tessera::cli {

class Net {
 public:
  using Node = size_t;
  explicit Net(CaseContext& c) : c_(c) {}

  Node input(const Tensor& value);
  // The pooled features, as one input. Weights and gradients of table t are called prefix + t + ".weight".
  Node embeddings(const json& tables, const json& features, const std::string& prefix);
  // A layer; option "inputs" is added to its options. Of its parameters' TorchRec names those that match `name` are
  // called `own` here, as std::regex_replace has it; names are tried in the order in which they were added.
  struct Name {
    std::string torch, own;
  };
  Node layer(const std::string& layer, json options, const std::vector<Node>& inputs, const std::vector<Name>& names);

  // Takes the parameters from given.params, runs all and returns the last node's values.
  Tensor forward();
  // From the last node's gradient; then gradients of parameters are compared with expect.param_grads.
  void backward(const Tensor& grad);
  const Tensor& gradient(Node node) const { return nodes_[node].grad; }

 private:
  struct Item {
    std::unique_ptr<DenseLayer> layer;  // null: an input, or embeddings
    std::unique_ptr<EmbeddingBagCollection> tables;
    EmbeddingContext context;
    KeyedJaggedTensor features;
    std::string prefix;  // of names of tables
    std::vector<Node> inputs;
    std::vector<std::pair<std::regex, std::string>> names;
    Tensor value, grad;
  };
  // The parameter of that TorchRec name, or its gradient: one of a layer, or a row of it where `own` ends in "[row]".
  struct Found {
    Tensor value, grad;
  };
  Found find(const std::string& name) const;
  int64_t width(Node node) const { return nodes_[node].value.size(1); }

  CaseContext& c_;
  std::deque<Item> nodes_;
  std::vector<std::pair<std::string, Tensor>> table_grads_;
};

}  // namespace tessera::cli
