// The core's graph of layers over tables, for the cases of area "extras", with TorchRec's names of values and
// gradients.
#pragma once

#include <deque>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "conformance/runner.h"
#include "tessera/embedding_modules.h"
#include "tessera/layer_graph.h"

namespace tessera::cli {

class Net {
 public:
  using Node = std::string;  // an input or a layer of the graph
  explicit Net(CaseContext& c) : c_(c) {}

  Node input(const Tensor& value);
  // The pooled features, as one input. Weights and gradients of table t are named prefix + t + ".weight".
  Node embeddings(const json& tables, const json& features, const std::string& prefix);
  // Parameters whose TorchRec names match `torch` are called `own` in this layer, as std::regex_replace writes it;
  // "[2]" at its end selects that row. Names are tried in the order in which they were added.
  struct Name {
    std::string torch, own;
  };
  Node layer(const std::string& type, const json& options, const std::vector<Node>& inputs,
             const std::vector<Name>& names);

  // Takes the parameters from given.params, runs all layers and returns the output of the last one.
  Tensor forward();
  // Runs backward from the gradient of that output; compares the gradients of parameters with expect.param_grads.
  void backward(const Tensor& grad);
  Tensor gradient(const Node& input) const;

 private:
  struct Tables {
    std::string prefix;
    std::unique_ptr<EmbeddingBagCollection> collection;
    EmbeddingContext context;
    Node input;
  };
  struct Found {
    Tensor value, grad;
  };
  // A parameter of a layer, or a row of it, and its gradient.
  Found find(const std::string& name) const;
  // Columns of the pooled rows.
  const GraphInput& columns(const Node& input) const;

  CaseContext& c_;
  ModelGraph graph_;
  std::deque<Tables> tables_;
  std::vector<Tensor> inputs_;  // in the order of graph_.inputs, next to each other as in the pooled rows
  std::vector<std::pair<std::regex, std::string>> names_;  // TorchRec's name to "<layer>.<own>"
  std::optional<LayerGraph> model_;
  Tensor dense_, pooled_, grad_pooled_;
};

}  // namespace tessera::cli
