#include "conformance/sequence_net.h"

#include <algorithm>

namespace tessera::cli {
namespace {

Tensor as_rows(const Tensor& values) {
  const int64_t rows = values.size(0);
  int64_t width = 1;
  for (int64_t d = 1; d < values.dim(); ++d) width *= values.size(d);
  return values.reshape({rows, width});
}

// The values in the order of the layer's parameter, or back.
Tensor turned(const Tensor& from, SequenceNet::Form form) {
  if (form == SequenceNet::Form::kSame) return from;
  const int64_t rows = from.size(0), columns = from.size(1);
  Tensor to = Tensor::empty({columns, rows});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < columns; ++k) to.data<float>()[k * rows + r] = from.data<float>()[r * columns + k];
  }
  return to;
}

// One of the parts that the first dimension counts.
Tensor part_of(const Tensor& all, int64_t part) {
  if (part < 0) return all;
  const std::vector<int64_t> shape(all.shape().begin() + 1, all.shape().end());
  Tensor out = Tensor::empty(shape);
  std::copy_n(all.data<float>() + part * out.numel(), out.numel(), out.data<float>());
  return out;
}

}  // namespace

SequenceNet::Node SequenceNet::sequence(const Tensor& rows, const Tensor& offsets) {
  const Tensor values = as_rows(rows);
  const int64_t index = std::ssize(graph_.sequences);
  graph_.sequences.push_back(values.size(1));
  graph_.inputs.push_back({str_cat("sequence_", index), GraphInput::kSequence, index, values.size(1)});
  sequences_.emplace_back(values, offsets.defined() ? offsets : offsets_);
  return graph_.inputs.back().name;
}

SequenceNet::Node SequenceNet::dense(const Tensor& rows) {
  const Tensor values = as_rows(rows);
  graph_.inputs.push_back({str_cat("dense_", dense_.size()), GraphInput::kPooled, graph_.pooled_width, values.size(1)});
  graph_.pooled_width += values.size(1);
  dense_.push_back(values);
  return graph_.inputs.back().name;
}

SequenceNet::Node SequenceNet::integers(const Tensor& values, const Node& like) {
  const int64_t index = std::stoll(like.substr(like.find('_') + 1));
  graph_.inputs.push_back({str_cat("integers_", ids_.size()), GraphInput::kIds, std::ssize(graph_.ids), 1});
  graph_.ids.push_back({like, index});
  const Tensor ids = values.to(DType::kInt64);
  ids_.emplace_back(ids.reshape({ids.numel(), 1}), sequences_.at(static_cast<size_t>(index)).offsets);
  return graph_.inputs.back().name;
}

SequenceNet::Node SequenceNet::integers(const Tensor& values) {
  graph_.inputs.push_back({str_cat("integers_", ids_.size()), GraphInput::kIds, std::ssize(graph_.ids), 1});
  graph_.ids.push_back({"samples", -1});
  const Tensor ids = values.to(DType::kInt64);
  ids_.emplace_back(ids.reshape({ids.numel(), 1}));
  return graph_.inputs.back().name;
}

SequenceNet::Node SequenceNet::layer(const std::string& type, const json& options, const std::vector<Node>& inputs,
                                     const std::vector<Parameter>& parameters) {
  std::string name = str_cat("layer_", graph_.layers.size());
  graph_.layers.push_back({name, type, inputs, options.dump()});
  for (const Parameter& p : parameters) taken_.push_back({p, str_cat(name, '.', p.own)});
  return name;
}

SequenceNet::Node SequenceNet::linear(const Node& input, const std::string& weight, const std::string& bias,
                                      Form form) {
  const json& shape = params().at(weight).at("shape");
  std::vector<Parameter> parameters = {{weight, "weight", form}};
  if (!bias.empty()) parameters.push_back({bias, "bias"});
  return layer("linear", {{"width", shape.at(form == Form::kSame ? 0 : 1)}, {"bias", !bias.empty()}}, {input},
               parameters);
}

SequenceNet::Node SequenceNet::norm(const Node& input, const std::string& prefix, double eps) {
  const std::string dot = prefix.empty() ? "" : prefix + ".";
  if (!has(dot + "w")) return layer("layer_norm", {{"eps", eps}, {"weights", false}}, {input});
  return layer("layer_norm", {{"eps", eps}}, {input}, {{dot + "w", "weight"}, {dot + "b", "bias"}});
}

bool SequenceNet::has(const std::string& parameter) const {
  return c_.given.contains("params") && params().contains(parameter);
}

Tensor SequenceNet::found(const Taken& taken, bool gradient) const {
  for (const ParameterPtr& p : model_->parameters()) {
    if (p->name == taken.name) return gradient ? p->grad : p->value;
  }
  fail(Code::kNotFound, "no layer has a parameter for ", taken.parameter.given);
}

std::vector<Tensor> SequenceNet::forward(const std::vector<Node>& outputs) {
  for (const Node& node : outputs) graph_.heads.push_back({str_cat("head_", graph_.heads.size()), node});
  model_.emplace(c_.runtime, graph_, LayerGraphOptions{.sequence_heads = true});
  for (const Taken& taken : taken_) {
    const Tensor given = part_of(parameter(taken.parameter.given), taken.parameter.part);
    const Tensor from = turned(given, taken.parameter.form), to = found(taken, false);
    if (from.numel() != to.numel()) fail(Code::kInvalidArgument, taken.parameter.given, " has another size here");
    std::copy_n(from.data<float>(), from.numel(), to.data<float>());
  }
  return run();
}

std::vector<Tensor> SequenceNet::run() {
  const int64_t batch = offsets_.numel() - 1;
  const Tensor pooled = Tensor::empty({batch, graph_.pooled_width});
  int64_t column = 0;
  for (const Tensor& values : dense_) {
    for (int64_t s = 0; s < batch; ++s)
      std::copy_n(values.data<float>() + s * values.size(1), values.size(1),
                  pooled.data<float>() + s * graph_.pooled_width + column);
    column += values.size(1);
  }
  return model_->forward(Tensor::zeros({batch, 0}), pooled, trains_, sequences_, ids_);
}

Tensor SequenceNet::forward_numbered(const Node& node) {
  (void)forward({node});
  const Tensor numbers = model_->parameters().at(0)->value;
  for (int64_t i = 0; i < numbers.numel(); ++i) numbers.data<float>()[i] = static_cast<float>(i);
  return run()[0];
}

void SequenceNet::backward(const std::vector<Tensor>& grads) {
  grad_pooled_ = model_->backward(grads);
  const json& wanted = field_or_null(c_.expect, "param_grads");
  for (const Taken& taken : taken_) {
    if (!wanted.is_object() || !wanted.contains(taken.parameter.given)) continue;
    if (taken.parameter.part > 0) continue;  // gathered with the first
    check_gradient("param_grads." + taken.parameter.given, wanted.at(taken.parameter.given),
                   gathered(taken.parameter.given));
  }
}

Tensor SequenceNet::gathered(const std::string& given) const {
  std::vector<float> all;
  for (const Taken& taken : taken_) {
    if (taken.parameter.given != given) continue;
    const Tensor got = turned(found(taken, true), taken.parameter.form);
    if (taken.parameter.part < 0) return got;
    all.insert(all.end(), got.data<float>(), got.data<float>() + got.numel());
  }
  return Tensor::from(all);
}

Tensor SequenceNet::gradient(const Node& input) const {
  const auto found = std::find_if(graph_.inputs.begin(), graph_.inputs.end(),
                                  [&](const GraphInput& one) { return one.name == input; });
  if (found->from == GraphInput::kSequence) return model_->sequence_gradients().at(static_cast<size_t>(found->column));
  Tensor out = Tensor::empty({grad_pooled_.size(0), found->width});
  for (int64_t s = 0; s < out.size(0); ++s)
    std::copy_n(grad_pooled_.data<float>() + s * grad_pooled_.size(1) + found->column, found->width,
                out.data<float>() + s * found->width);
  return out;
}

Tensor SequenceNet::parameter_gradient(const std::string& given) const {
  const auto taken =
      std::find_if(taken_.begin(), taken_.end(), [&](const Taken& t) { return t.parameter.given == given; });
  return taken == taken_.end() ? Tensor() : turned(found(*taken, true), taken->parameter.form);
}

void SequenceNet::check(const std::vector<Named>& outputs, const std::vector<Named>& inputs,
                        const std::vector<Node>& also) {
  std::vector<Node> nodes;
  for (const Named& output : outputs) nodes.push_back(output.node);
  nodes.insert(nodes.end(), also.begin(), also.end());
  const std::vector<Tensor> got = forward(nodes);
  std::vector<Tensor> grads;
  const json& given_grads = field_or_null(c_.given, "output_grads");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = outputs[i].name;
    const json& want = c_.expect.at("outputs").at(name);
    c_.check.tensor(name, want, got[i].clone().reshape(want.at("shape").get<std::vector<int64_t>>()));
    grads.push_back(given_grads.is_object() && given_grads.contains(name)
                        ? tensor_from(given_grads.at(name)).reshape(got[i].shape())
                        : Tensor());
  }
  if (!given_grads.is_object() || given_grads.empty()) return;
  grads.resize(nodes.size());
  backward(grads);
  for (const Named& input : inputs) {
    const json& want = c_.expect.at("input_grads").at(input.name);
    check_gradient("input_grads." + input.name, want, gradient(input.node));
  }
}

void SequenceNet::check_gradient(const std::string& field, const json& want, const Tensor& got) {
  const auto shape = want.at("shape").get<std::vector<int64_t>>();
  Checker one = gradients_;
  one.tensor(field, want, got.defined() ? got.reshape(shape) : Tensor::zeros(shape));
  if (!one.ok()) c_.check.fail(field, one.summary());
}

}  // namespace tessera::cli
