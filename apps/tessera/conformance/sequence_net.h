// The core's graph of layers over sequences, for the cases of area "sequences".
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/runner.h"
#include "tessera/layer_graph.h"

namespace tessera::cli {

inline const json& options_of(const CaseContext& c) { return c.given.at("options"); }
inline bool has_input(const CaseContext& c, const char* name) { return c.given.at("inputs").contains(name); }
inline Tensor input_of(const CaseContext& c, const char* name) { return tensor_from(c.given.at("inputs").at(name)); }

// Offsets of `count` samples with `rows` rows each.
inline Tensor equal_offsets(int64_t count, int64_t rows) {
  std::vector<int64_t> bounds(static_cast<size_t>(count) + 1);
  for (size_t s = 0; s < bounds.size(); ++s) bounds[s] = static_cast<int64_t>(s) * rows;
  return Tensor::from(bounds);
}

class SequenceNet {
 public:
  using Node = std::string;  // an input or a layer of the graph
  // `offsets` are those of the case's samples.
  SequenceNet(CaseContext& c, const Tensor& offsets)
      : c_(c),
        offsets_(offsets),
        gradients_(c.tolerance.value("grad_rtol", 0.0), c.tolerance.value("grad_atol", 0.0)) {}

  // Rows of float32; without offsets those of the samples.
  Node sequence(const Tensor& rows, const Tensor& offsets = {});
  // One row for each sample.
  Node dense(const Tensor& rows);
  // Integers of the rows of a sequence, or of samples.
  Node integers(const Tensor& values, const Node& like);
  Node integers(const Tensor& values);

  // How a parameter of a case is written into one of a layer.
  enum class Form { kSame, kTransposed };
  struct Parameter {
    std::string given, own;  // "attn.wq", "weight"
    Form form = Form::kSame;
    int64_t part = -1;  // index in the case's first dimension; -1: all of it
  };
  Node layer(const std::string& type, const json& options, const std::vector<Node>& inputs,
             const std::vector<Parameter>& parameters = {});
  // "linear" with weights [out, in], or [in, out] if `form` says so. `bias` may be "".
  Node linear(const Node& input, const std::string& weight, const std::string& bias, Form form = Form::kSame);
  // "layer_norm" with `prefix` + ".w" and ".b", if the case has them.
  Node norm(const Node& input, const std::string& prefix, double eps);

  // Layers run as outside training from here on.
  void evaluate() { trains_ = false; }
  // Runs all layers. Returns the rows of these nodes.
  std::vector<Tensor> forward(const std::vector<Node>& outputs);
  // `grads`: of forward's results. Compares the gradients of all parameters that layers have taken from the case.
  void backward(const std::vector<Tensor>& grads);
  // Gradient of an input; undefined if nothing takes it.
  Tensor gradient(const Node& input) const;
  // Gradient of a parameter of the case; undefined if no layer has taken it.
  Tensor parameter_gradient(const std::string& given) const;
  // Compares a gradient with the case's.
  void check_gradient(const std::string& field, const json& want, const Tensor& got);

  // The rows of the layer `node`, after its only parameter was filled with the numbers of its rows.
  Tensor forward_numbered(const Node& node);

  // Offsets of an output of the last forward that is a sequence.
  const Tensor& offsets(size_t output) const { return model_->head_offsets(output); }

  // Compares expect.outputs[name] with the rows of `nodes`, and gradients of these inputs, after a backward. Nodes in
  // `also` follow as outputs that are not compared.
  struct Named {
    std::string name;
    Node node;
  };
  void check(const std::vector<Named>& outputs, const std::vector<Named>& inputs, const std::vector<Node>& also = {});
  const json& params() const { return c_.given.at("params"); }
  bool has(const std::string& parameter) const;
  Tensor parameter(const std::string& name) const { return tensor_from(params().at(name)); }

 private:
  struct Taken {
    Parameter parameter;
    std::string name;  // in the graph: "layer_3.weight"
  };
  Tensor found(const Taken& taken, bool gradient) const;
  // The gradient of a parameter of the case, of whose parts layers may have taken some.
  Tensor gathered(const std::string& given) const;
  std::vector<Tensor> run();

  CaseContext& c_;
  Tensor offsets_;
  Checker gradients_;  // which have a tolerance of their own
  ModelGraph graph_;
  std::vector<DenseInput> sequences_, ids_;
  std::vector<Tensor> dense_;
  std::vector<Taken> taken_;
  std::optional<LayerGraph> model_;
  Tensor grad_pooled_;
  bool trains_ = true;
};

}  // namespace tessera::cli
