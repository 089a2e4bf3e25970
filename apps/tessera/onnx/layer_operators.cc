// Operators of ONNX that are layers of their own: products with matrices, activations, norms.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>

#include "onnx/importer.h"

namespace tessera::cli {
namespace {

using Values = Importer::Values;
using json = nlohmann::ordered_json;

// The part before ".weight" in the name of a constant, because programs name a layer's constants after it.
std::string owner_of(const onnx::NodeProto& node, int constant) {
  const std::string name = constant < node.input_size() ? node.input(constant) : "";
  for (const char* end : {".weight", "_weight", ".kernel"}) {
    if (name.ends_with(end) && name.find(':') == std::string::npos)
      return name.substr(0, name.size() - std::string(end).size());
  }
  return node.name().empty() ? "linear" : node.name();
}

Tensor tensor_of(const std::vector<double>& values) {
  const std::vector<float> floats(values.begin(), values.end());
  return Tensor::from(std::span<const float>(floats), {static_cast<int64_t>(floats.size())});
}

Values product_with(Importer& im, const onnx::NodeProto& node, bool transposed, double alpha,
                    std::vector<double> bias) {
  const ImportValue& x = im.value(node, 0);
  const OnnxConstant& matrix = im.needed_constant(node, 1, "matrix");
  if (x.flat) im.refuse(node, "cannot become a layer, because its first input is [batch] and not [batch, width]");
  if (matrix.shape.size() != 2) im.refuse(node, "cannot become a layer, because its constant has no rows and columns");
  const auto in = static_cast<size_t>(matrix.shape[transposed ? 1 : 0]);
  const auto out = static_cast<size_t>(matrix.shape[transposed ? 0 : 1]);
  if (out == 0) im.refuse(node, "cannot become a layer, because its constant is empty");
  if (static_cast<int64_t>(in) != x.width())
    im.refuse(node, "takes ", in, " values of a sample, and its input has ", x.width());
  if (!bias.empty() && bias.size() != out) im.refuse(node, "has ", bias.size(), " biases for ", out, " values");
  std::vector<double> weight(in * out);
  for (size_t o = 0; o < out; ++o) {
    for (size_t i = 0; i < in; ++i) weight[o * in + i] = alpha * matrix.values[transposed ? o * in + i : i * out + o];
  }
  ImportValue made =
      im.layers.linear(owner_of(node, 1), x, std::move(weight), std::move(bias), Importer::described(node));
  made.sole = im.is_sole(node);
  return {made};
}

Values gemm(Importer& im, const onnx::NodeProto& node) {
  if (integer_attribute(node, "transA", 0) != 0) im.refuse(node, "cannot become a layer, because transA is 1");
  std::vector<double> bias;
  if (node.input_size() > 2 && !node.input(2).empty()) {
    const OnnxConstant& c = im.needed_constant(node, 2, "third input");
    const OnnxConstant& matrix = im.needed_constant(node, 1, "matrix");
    const bool transposed = integer_attribute(node, "transB", 0) != 0;
    bias = c.values;
    if (bias.size() == 1 && matrix.shape.size() == 2)
      bias.assign(static_cast<size_t>(matrix.shape[transposed ? 0 : 1]), c.values[0]);
    for (double& b : bias) b *= number_attribute(node, "beta", 1);
  }
  return product_with(im, node, integer_attribute(node, "transB", 0) != 0, number_attribute(node, "alpha", 1), bias);
}

Values matmul(Importer& im, const onnx::NodeProto& node) { return product_with(im, node, false, 1, {}); }

Values activated(Importer& im, const onnx::NodeProto& node, const char* kind, json more = json::object()) {
  const ImportValue& x = im.value(node, 0);
  json options = {{"kind", kind}};
  options.update(more);
  return {im.layer(node, "activation", x, x.width(), options)};
}

// An activation whose other numbers are always the same.
template <const char* Kind>
Values activation(Importer& im, const onnx::NodeProto& node) {
  return activated(im, node, Kind);
}
constexpr char kRelu[] = "relu", kSigmoid[] = "sigmoid", kTanh[] = "tanh", kSoftplus[] = "softplus", kMish[] = "mish";

void need_number(const Importer& im, const onnx::NodeProto& node, const char* name, double otherwise, double known) {
  const double given = number_attribute(node, name, otherwise);
  if (std::abs(given - known) > 1e-4)
    im.refuse(node, "cannot become a layer, because its ", name, " is ", given, " and not ", known);
}

Values leaky_relu(Importer& im, const onnx::NodeProto& node) {
  const double slope = number_attribute(node, "alpha", 0.01);
  return activated(im, node, "leaky_relu", std::abs(slope - 0.01) < 1e-8 ? json::object() : json{{"slope", slope}});
}

Values elu(Importer& im, const onnx::NodeProto& node) {
  need_number(im, node, "alpha", 1, 1);
  return activated(im, node, "elu");
}

Values selu(Importer& im, const onnx::NodeProto& node) {
  need_number(im, node, "alpha", 1.6732632, 1.6732632);
  need_number(im, node, "gamma", 1.0507010, 1.0507010);
  return activated(im, node, "selu");
}

Values swish(Importer& im, const onnx::NodeProto& node) {
  need_number(im, node, "alpha", 1, 1);
  return activated(im, node, "silu");
}

Values gelu(Importer& im, const onnx::NodeProto& node) {
  if (text_attribute(node, "approximate", "none") != "none")
    im.refuse(node, "cannot become a layer, because it is approximated by tanh");
  return activated(im, node, "gelu");
}

Values prelu(Importer& im, const onnx::NodeProto& node) {
  const OnnxConstant& slope = im.needed_constant(node, 1, "slope");
  if (slope.values.size() != 1)
    im.refuse(node, "cannot become a layer, because it has ", slope.values.size(), " slopes and not one");
  Values out = activated(im, node, "prelu");
  im.layers.layers().back().parameters["weight"] = tensor_of(slope.values);
  return out;
}

// The line between points.
Values line(Importer& im, const onnx::NodeProto& node, const std::vector<double>& at, const std::vector<double>& to) {
  ImportValue x = im.layers.plain(im.value(node, 0));
  const int64_t width = x.width();
  x.parts = {{im.layers.single(x), width}};
  return {im.layer(node, "piecewise", x, width, {{"at", at}, {"values", to}})};
}

Values clip(Importer& im, const onnx::NodeProto& node) {
  const auto bound = [&](int input, const char* name) {
    if (input < node.input_size() && !node.input(input).empty()) return im.number(node, input, name);
    if (find_attribute(node, name) == nullptr) im.refuse(node, "cannot become a layer, because it has no ", name);
    return number_attribute(node, name, 0);
  };
  const bool open = node.input_size() < 3 || node.input(2).empty();
  if (open && is_length(im, im.value(node, 0))) return at_least(im, node);
  const double low = bound(1, "min"), high = bound(2, "max");
  if (!(low < high)) im.refuse(node, "cannot become a layer, because its min is not below its max");
  return line(im, node, {low, high}, {low, high});
}

Values hard_sigmoid(Importer& im, const onnx::NodeProto& node) {
  const double alpha = number_attribute(node, "alpha", 0.2), beta = number_attribute(node, "beta", 0.5);
  if (alpha <= 0) im.refuse(node, "cannot become a layer, because its alpha is ", alpha);
  return line(im, node, {-beta / alpha, (1 - beta) / alpha}, {0, 1});
}

Values softmax(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  im.need_last_axis(node, integer_attribute(node, "axis", -1), x);
  return {im.layer(node, "softmax", x, x.width())};
}

// Adds a layer that has parameters with one value for each column. `inputs` has the index of the node's input for each
// parameter.
Values normed(Importer& im, const onnx::NodeProto& node, const char* type, json options,
              const std::vector<std::pair<const char*, int>>& inputs) {
  const ImportValue& x = im.value(node, 0);
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, input] : inputs) {
    const bool there = input < node.input_size() && !node.input(input).empty();
    std::vector<double> values =
        there ? im.needed_constant(node, input, name).values : std::vector<double>(static_cast<size_t>(x.width()), 0);
    if (values.size() == 1) values.assign(static_cast<size_t>(x.width()), values[0]);
    if (static_cast<int64_t>(values.size()) != x.width())
      im.refuse(node, "takes ", values.size(), " values of a sample, and its input has ", x.width());
    parameters[name] = tensor_of(values);
  }
  ImportedLayer layer{.type = type,
                      .inputs = im.layers.plain(x).parts,
                      .options = std::move(options),
                      .parameters = std::move(parameters),
                      .node = Importer::described(node)};
  const std::string owner = owner_of(node, 1);
  return {im.layers.add(owner == "linear" ? type : owner, std::move(layer), x.width())};
}

Values layer_normalization(Importer& im, const onnx::NodeProto& node) {
  im.need_last_axis(node, integer_attribute(node, "axis", -1), im.value(node, 0));
  return normed(im, node, "layer_norm", {{"eps", number_attribute(node, "epsilon", 1e-5)}},
                {{"weight", 1}, {"bias", 2}});
}

Values batch_normalization(Importer& im, const onnx::NodeProto& node) {
  const json options = {{"eps", number_attribute(node, "epsilon", 1e-5)},
                        {"momentum", 1 - number_attribute(node, "momentum", 0.9)}};
  Values out =
      normed(im, node, "batch_norm", options, {{"weight", 1}, {"bias", 2}, {"running_mean", 3}, {"running_var", 4}});
  im.layers.layers().back().parameters["num_batches_tracked"] = Tensor::zeros({}, DType::kInt64);
  return out;
}

Values dropout(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  double rate = number_attribute(node, "ratio", 0.5);
  if (node.input_size() > 1 && !node.input(1).empty()) rate = im.number(node, 1, "ratio");
  if (rate == 0) return {x};
  return {im.layer(node, "dropout", x, x.width(), {{"rate", rate}})};
}

}  // namespace

void add_layer_operators(OperatorTable& table) {
  table.insert({{"Gemm", gemm},
                {"MatMul", matmul},
                {"Relu", activation<kRelu>},
                {"Sigmoid", activation<kSigmoid>},
                {"Tanh", activation<kTanh>},
                {"Softplus", activation<kSoftplus>},
                {"Mish", activation<kMish>},
                {"LeakyRelu", leaky_relu},
                {"Elu", elu},
                {"Selu", selu},
                {"Swish", swish},
                {"Gelu", gelu},
                {"PRelu", prelu},
                {"Clip", clip},
                {"HardSigmoid", hard_sigmoid},
                {"Softmax", softmax},
                {"LayerNormalization", layer_normalization},
                {"BatchNormalization", batch_normalization},
                {"Dropout", dropout}});
}

}  // namespace tessera::cli
