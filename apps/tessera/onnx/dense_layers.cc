// Layers that compute each row by itself. docs/layers.md has their formulas.
#include <cmath>

#include "onnx/layer.h"

namespace tessera::cli {
namespace {

OnnxValue like(const OnnxValue& x, std::string name, int64_t width) { return {std::move(name), width, x.rows}; }

std::string layer_norm(OnnxLayer& l, const std::string& x, double eps, const std::string& prefix) {
  return l.g.node("LayerNormalization", {x, l.parameter(prefix + "weight"), l.parameter(prefix + "bias")},
                  {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(eps)}});
}

// (x - mean) / sqrt(variance + eps) with the running statistics.
std::string batch_standardised(OnnxLayer& l, const std::string& x, double eps, const std::string& prefix) {
  const std::string deviation = l.g.node("Sqrt", {l.g.add(l.parameter(prefix + "running_var"), l.g.number(eps))});
  return l.g.divide(l.g.subtract(x, l.parameter(prefix + "running_mean")), deviation);
}

std::string batch_norm(OnnxLayer& l, const std::string& x, double eps, const std::string& prefix) {
  return l.g.add(l.g.multiply(batch_standardised(l, x, eps, prefix), l.parameter(prefix + "weight")),
                 l.parameter(prefix + "bias"));
}

std::string dice(OnnxLayer& l, const std::string& x, double eps, const std::string& prefix) {
  const std::string p = l.g.node("Sigmoid", {batch_standardised(l, x, eps, prefix)});
  const std::string rest = l.g.multiply(l.g.subtract(l.g.number(1), p), l.parameter(prefix + "alpha"));
  return l.g.multiply(l.g.add(p, rest), x);
}

// The linear layers, norms and activations of an mlp, whose norms are `norm` unless an option says otherwise.
std::string mlp(OnnxLayer& l, std::string x, const char* norm_by_default, const std::string& prefix) {
  l.ignore({"widths", "layers", "dropout", "bias"});  // parameters tell
  const auto activation = l.option<std::string>("activation", "relu");
  const auto final_activation = l.option<std::string>("final_activation", "none");
  const auto norm = l.option<std::string>("norm", norm_by_default);
  const auto number = [&](size_t k) { return prefix + std::to_string(k) + "."; };
  for (size_t k = 0; l.has_parameter(number(k) + "weight"); ++k) {
    const bool last = !l.has_parameter(number(k + 1) + "weight");
    const std::string& f = last ? final_activation : activation;
    x = write_linear(l, x, number(k));
    if (!last || f != "none") {
      if (norm == "layer") x = layer_norm(l, x, 1e-5, number(k) + "norm.");
      if (norm == "batch") x = batch_norm(l, x, 1e-5, number(k) + "norm.");
    }
    x = f == "dice" ? dice(l, x, 1e-8, number(k) + "activation.")
                    : write_activation(l, x, f, 0.01, number(k) + "activation.");
  }
  return x;
}

int64_t last_width(const OnnxLayer& l, const std::string& prefix) {
  size_t k = 0;
  while (l.has_parameter(prefix + std::to_string(k + 1) + ".weight")) ++k;
  return l.shape_of(prefix + std::to_string(k) + ".weight")[0];
}

OnnxValues write_mlp(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  return {like(x, mlp(l, x.name, l.type() == "mlp" ? "none" : "batch", ""), last_width(l, ""))};
}

OnnxValues write_linear_layer(OnnxLayer& l) {
  l.ignore({"width", "bias"});
  const OnnxValue x = l.joined();
  return {like(x, write_linear(l, x.name, ""), l.shape_of("weight")[0])};
}

OnnxValues write_projection(OnnxLayer& l) {
  l.ignore({"width", "bias"});
  GraphWriter::Names parts;
  int64_t width = 0;
  for (size_t i = 0; i < l.inputs.size(); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    parts.push_back(write_linear(l, l.inputs[i].name, prefix));
    width += l.shape_of(prefix + "weight")[0];
  }
  return {like(l.inputs[0], l.g.concat(parts), width)};
}

OnnxValues write_activation_layer(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto kind = l.option<std::string>("kind", "relu");
  return {like(x, write_activation(l, x.name, kind, l.option("slope", 0.01), ""), x.width)};
}

OnnxValues write_affine(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const std::string scaled = l.g.multiply(x.name, l.g.number(l.option("factor", 1.0)));
  return {like(x, l.g.add(scaled, l.g.number(l.option("offset", 0.0))), x.width)};
}

OnnxValues write_same(OnnxLayer& l) {  // what acts only in training
  l.ignore({"rate"});
  return {l.joined()};
}

OnnxValues write_softmax(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  return {like(x, l.g.node("Softmax", {x.name}, {{"axis", int64_t{-1}}}), x.width)};
}

// The shape of x whose last dimension is cut into several.
std::vector<int64_t> cut(const OnnxValue& x, const std::vector<int64_t>& last) {
  std::vector<int64_t> out(x.rows ? 2 : 1, 0);  // 0: as it is
  out.insert(out.end(), last.begin(), last.end());
  return out;
}

OnnxValues write_layer_norm(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const double eps = l.option("eps", 1e-5);
  const auto groups = l.option<int64_t>("groups", 1);
  const bool weights = l.option("weights", true);
  if (weights && groups == 1) return {like(x, layer_norm(l, x.name, eps, ""), x.width)};
  const std::string parts = l.g.reshape(x.name, cut(x, {groups, x.width / groups}));
  const GraphWriter::Attributes last = {{"axes", std::vector<int64_t>{-1}}};
  const std::string centred = l.g.subtract(parts, l.g.node("ReduceMean", {parts}, last));
  const std::string variance = l.g.node("ReduceMean", {l.g.multiply(centred, centred)}, last);
  std::string y = l.g.divide(centred, l.g.node("Sqrt", {l.g.add(variance, l.g.number(eps))}));
  const auto of_part = [&](const char* name) { return l.g.unsqueeze(l.parameter(name), -1); };  // [groups, 1]
  if (weights) y = l.g.add(l.g.multiply(y, of_part("weight")), of_part("bias"));
  return {like(x, l.g.reshape(y, cut(x, {x.width})), x.width)};
}

OnnxValues write_l2_norm(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const std::string norm = l.g.node("ReduceL2", {x.name}, {{"axes", std::vector<int64_t>{-1}}});
  return {like(x, l.g.divide(x.name, l.g.maximum(norm, l.g.number(l.option("eps", 1e-6)))), x.width)};
}

OnnxValues write_swish_layer_norm(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const std::string norm = layer_norm(l, x.name, l.option("eps", 1e-5), "norm.");
  return {like(x, l.g.multiply(x.name, l.g.node("Sigmoid", {norm})), x.width)};
}

OnnxValues write_split_columns(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto widths = l.option<std::vector<int64_t>>("widths", {});
  const GraphWriter::Names parts = l.g.split(x.name, -1, widths);
  OnnxValues out;
  for (size_t k = 0; k < parts.size(); ++k) out.push_back(like(x, parts[k], widths[k]));
  return out;
}

OnnxValues write_batch_norm(OnnxLayer& l) {
  l.ignore({"momentum"});
  const OnnxValue x = l.joined();
  return {like(x, batch_norm(l, x.name, l.option("eps", 1e-5), ""), x.width)};
}

OnnxValues write_dice(OnnxLayer& l) {
  l.ignore({"momentum"});
  const OnnxValue x = l.joined();
  return {like(x, dice(l, x.name, l.option("eps", 1e-8), ""), x.width)};
}

void need_samples(const OnnxLayer& l) {
  for (const OnnxValue& x : l.inputs) {
    if (x.rows) l.refuse("it takes a sequence there, and only values of samples are supported");
  }
}

OnnxValues write_dot_interaction(OnnxLayer& l) {
  need_samples(l);
  const OnnxValue dense = l.inputs.at(0);
  const OnnxValue all = l.joined();
  const int64_t vectors = all.width / dense.width;
  const std::string rows = l.g.reshape(all.name, {0, vectors, dense.width});
  const std::string products = l.g.node("MatMul", {rows, l.g.transpose(rows, {0, 2, 1})});
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < vectors; ++i) {
    for (int64_t j = i + 1; j < vectors; ++j) pairs.push_back(i * vectors + j);
  }
  const std::string flat = l.g.reshape(products, {0, vectors * vectors});
  const std::string chosen = l.g.node("Gather", {flat, l.g.integers(pairs)}, {{"axis", int64_t{1}}});
  return {like(dense, l.g.concat({dense.name, chosen}), dense.width + static_cast<int64_t>(pairs.size()))};
}

// One layer of a mixture of low-rank crosses: the sum over the experts, before it is multiplied by x0.
std::string mixture_of_crosses(OnnxLayer& l, const std::string& x, const std::string& prefix, const std::string& f) {
  const int64_t experts = l.shape_of(prefix + "u.weight")[0];
  GraphWriter::Names all;
  for (int64_t e = 0; e < experts; ++e) {
    const auto times = [&](const std::string& y, const char* which) {
      const std::string matrix = l.g.node("Gather", {l.parameter(prefix + which), l.g.integer(e)});
      return l.g.node("MatMul", {y, l.g.transpose(matrix, {1, 0})});
    };
    const std::string inner = write_activation(l, times(x, "v.weight"), f, 0, "");
    all.push_back(l.g.unsqueeze(times(write_activation(l, times(inner, "c.weight"), f, 0, ""), "u.weight"), -2));
  }
  const std::string outputs = l.g.concat(all, -2);
  if (experts == 1) return l.g.sum_over(outputs, -2);
  const std::string logits = l.g.node("MatMul", {x, l.g.transpose(l.parameter("gates.weight"), {1, 0})});
  const std::string gates = l.g.node("Softmax", {logits}, {{"axis", int64_t{-1}}});
  return l.g.sum_over(l.g.multiply(outputs, l.g.unsqueeze(gates, -1)), -2);
}

OnnxValues write_cross(OnnxLayer& l) {
  l.ignore({"layers", "rank", "experts", "width"});
  const OnnxValue x0 = l.joined();
  const auto kind = l.option<std::string>("kind", "");
  const auto f = l.option<std::string>("activation", "relu");
  std::string x = x0.name;
  for (size_t k = 0; l.has_parameter(std::to_string(k) + ".bias"); ++k) {
    const std::string prefix = std::to_string(k) + ".", &bias = l.parameter(prefix + "bias");
    if (kind == "vector") {
      const std::string weight = l.g.reshape(l.parameter(prefix + "weight"), {x0.width, 1});
      x = l.g.add(l.g.add(l.g.multiply(x0.name, l.g.node("MatMul", {x, weight})), bias), x);
      continue;
    }
    std::string y;
    if (kind == "mixture") {
      y = l.g.add(mixture_of_crosses(l, x, prefix, f), bias);
    } else if (l.has_parameter(prefix + "v.weight")) {
      const std::string down = l.g.node("MatMul", {x, l.g.transpose(l.parameter(prefix + "v.weight"), {1, 0})});
      y = write_linear(l, down, prefix);
    } else {
      y = write_linear(l, x, prefix);
    }
    x = l.g.add(l.g.multiply(x0.name, y), x);
  }
  return {like(x0, x, x0.width)};
}

OnnxValues write_fm(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto dim = l.option<int64_t>("dim", 1);
  const std::string vectors = l.g.reshape(x.name, cut(x, {x.width / dim, dim}));
  const std::string sum = l.g.sum_over(vectors, -2);
  const std::string squares = l.g.sum_over(l.g.multiply(vectors, vectors), -2);
  const std::string pairs = l.g.subtract(l.g.multiply(sum, sum), squares);
  const std::string total = l.g.node("ReduceSum", {pairs, l.g.integers({-1})});
  return {like(x, l.g.multiply(total, l.g.number(0.5)), 1)};
}

OnnxValues write_bilinear(OnnxLayer& l) {
  const OnnxValue x = l.inputs.at(0), y = l.inputs.at(1);
  const auto heads = l.option<int64_t>("heads", 1);
  const std::string rows = l.g.reshape(x.name, cut(x, {heads, 1, x.width / heads}));
  const std::string turned = l.g.reshape(l.g.node("MatMul", {rows, l.parameter("xy.weight")}), cut(x, {y.width}));
  const std::string products = l.g.node("ReduceSum", {l.g.multiply(turned, y.name), l.g.integers({-1})});
  const std::string sum = l.g.add(write_linear(l, x.name, "x."), write_linear(l, y.name, "y."));
  return {like(x, l.g.add(sum, products), 1)};
}

OnnxValues write_matmul(OnnxLayer& l) {
  const OnnxValue a = l.inputs.at(0), b = l.inputs.at(1);
  const auto dim = l.option<int64_t>("dim", 1);
  const int64_t rows = a.width / dim, columns = b.width / dim;
  const bool transposed = l.option("transposed", false);
  const std::vector<int64_t> shape = transposed ? std::vector{columns, dim} : std::vector{dim, columns};
  std::string second = l.g.reshape(b.name, cut(b, shape));
  if (transposed)
    second = l.g.transpose(second, b.rows ? std::vector<int64_t>{0, 1, 3, 2} : std::vector<int64_t>{0, 2, 1});
  const std::string product = l.g.node("MatMul", {l.g.reshape(a.name, cut(a, {rows, dim})), second});
  return {like(a, l.g.reshape(product, cut(a, {rows * columns})), rows * columns)};
}

OnnxValues write_field_linear(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto dim = l.option<int64_t>("dim", 1), fields = l.option<int64_t>("fields", 1);
  std::string y = l.g.node("MatMul", {l.parameter("weight"), l.g.reshape(x.name, cut(x, {x.width / dim, dim}))});
  if (l.option("bias", false)) y = l.g.add(y, l.g.unsqueeze(l.parameter("bias"), -1));
  return {like(x, l.g.reshape(y, cut(x, {fields * dim})), fields * dim)};
}

OnnxValues write_field_products(OnnxLayer& l) {
  const OnnxValue x = l.inputs.at(0), y = l.inputs.at(1);
  const auto dim = l.option<int64_t>("dim", 1);
  const int64_t a = x.width / dim, b = y.width / dim;
  if (!l.option("later", false)) {
    const std::string all =
        l.g.multiply(l.g.reshape(x.name, cut(x, {a, 1, dim})), l.g.reshape(y.name, cut(y, {1, b, dim})));
    return {like(x, l.g.reshape(all, cut(x, {a * b * dim})), a * b * dim)};
  }
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = i + 1; j < b; ++j) first.push_back(i), second.push_back(j);
  }
  const auto of = [&](const OnnxValue& v, const std::vector<int64_t>& fields) {
    return l.g.node("Gather", {l.g.reshape(v.name, cut(v, {a, dim})), l.g.integers(fields)}, {{"axis", int64_t{-2}}});
  };
  const auto width = static_cast<int64_t>(first.size()) * dim;
  return {like(x, l.g.reshape(l.g.multiply(of(x, first), of(y, second)), cut(x, {width})), width)};
}

OnnxValues write_field_sum(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto dim = l.option<int64_t>("dim", 1);
  const std::string sum = l.g.sum_over(l.g.reshape(x.name, cut(x, {x.width / dim, dim})), -1);
  const double factor = l.option("mean", false) ? 1.0 / static_cast<double>(dim) : 1.0;
  return {like(x, l.g.multiply(sum, l.g.number(factor)), x.width / dim)};
}

OnnxValues write_field_scale(OnnxLayer& l) {
  const OnnxValue x = l.inputs.at(0), factors = l.inputs.at(1);
  const auto dim = l.option<int64_t>("dim", 1);
  const std::string fields = l.g.reshape(x.name, cut(x, {factors.width, dim}));
  const std::string product = l.g.multiply(fields, l.g.unsqueeze(factors.name, -1));
  return {like(x, l.g.reshape(product, cut(x, {x.width})), x.width)};
}

// Numbers are in front of buckets, which are the rows of products with a matrix of each number.
OnnxValues write_numeric_embedding(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto dim = l.option<int64_t>("dim", 1), buckets = l.option<int64_t>("buckets", 16);
  const std::string weight = l.g.reshape(l.parameter("weight"), {x.width, 1, buckets});
  const std::string numbers = l.g.reshape(x.name, cut(x, {x.width, 1, 1}));
  const std::string h = write_activation(l, l.g.multiply(numbers, weight), "leaky_relu", 0.01, "");
  const std::string mixed = l.g.node("MatMul", {h, l.g.transpose(l.parameter("mix.weight"), {0, 2, 1})});
  const std::string z = l.g.add(mixed, l.g.multiply(h, l.g.number(l.option("skip", 1.0))));
  const std::string scaled = l.g.divide(z, l.g.number(l.option("temperature", 1.0)));
  const std::string p = l.g.node("Softmax", {scaled}, {{"axis", int64_t{-1}}});
  const std::string rows = l.g.node("MatMul", {p, l.parameter("rows")});
  return {like(x, l.g.reshape(rows, cut(x, {x.width * dim})), x.width * dim)};
}

OnnxValues write_concat(OnnxLayer& l) { return {l.joined()}; }

OnnxValues write_elementwise(OnnxLayer& l) {
  OnnxValue out = l.inputs.at(0);
  for (size_t i = 1; i < l.inputs.size(); ++i)
    out.name = l.g.node(l.type() == "sum" ? "Add" : "Mul", {out.name, l.inputs[i].name});
  return {out};
}

OnnxValues write_logit_product(OnnxLayer& l) {
  OnnxValue out = l.inputs.at(0);
  std::string sum, product_of;
  for (const OnnxValue& x : l.inputs) {
    const std::string one = l.g.node("Softplus", {l.g.node("Neg", {x.name})}), p = l.g.node("Sigmoid", {x.name});
    sum = sum.empty() ? one : l.g.add(sum, one);
    product_of = product_of.empty() ? p : l.g.multiply(product_of, p);
  }
  // -ln(exp(s) - 1) = -s - ln(1 - exp(-s))
  const std::string product = l.g.node("Exp", {l.g.node("Neg", {sum})});
  const std::string rest = l.g.maximum(l.g.subtract(l.g.number(1), product), l.g.number(1e-30));
  out.name = l.g.node("Neg", {l.g.add(sum, l.g.node("Log", {rest}))});
  out.probability = product_of;
  return {out};
}

OnnxValues write_gate(OnnxLayer& l) {
  l.ignore({"bias"});
  const OnnxValue x = l.inputs.at(0);
  OnnxLayer signals = l;
  if (l.inputs.size() > 1) signals.inputs.erase(signals.inputs.begin());
  std::string s = signals.joined().name;
  const auto hidden = l.option<std::vector<int64_t>>("hidden", {});
  for (size_t k = 0; k < hidden.size(); ++k) s = l.g.node("Relu", {write_linear(l, s, std::to_string(k) + ".")});
  s = write_linear(l, s, std::to_string(hidden.size()) + ".");
  const auto f = l.option<std::string>("activation", "sigmoid");
  s = write_activation(l, s, f, 0.01, "");
  return {like(x, l.g.multiply(l.g.multiply(x.name, s), l.g.number(l.option("scale", 1.0))), x.width)};
}

OnnxValues write_experts(OnnxLayer& l) {
  const OnnxValue x = l.joined();
  const auto experts = l.option<int64_t>("experts", 4);
  GraphWriter::Names all;
  for (int64_t e = 0; e < experts; ++e) all.push_back(mlp(l, x.name, "none", std::to_string(e) + "."));
  return {like(x, l.g.concat(all), experts * last_width(l, "0."))};
}

OnnxValues write_mixture(OnnxLayer& l) {
  const OnnxValue gates = l.inputs.at(0), experts = l.inputs.at(1);
  std::string weights = gates.name;
  if (l.option("softmax", true)) weights = l.g.node("Softmax", {weights}, {{"axis", int64_t{-1}}});
  const int64_t width = experts.width / gates.width;
  const std::string all = l.g.reshape(experts.name, cut(experts, {gates.width, width}));
  return {like(gates, l.g.sum_over(l.g.multiply(all, l.g.unsqueeze(weights, -1)), -2), width)};
}

}  // namespace

std::string write_linear(OnnxLayer& l, const std::string& x, const std::string& prefix) {
  const std::string y = l.g.node("MatMul", {x, l.g.transpose(l.parameter(prefix + "weight"), {1, 0})});
  return l.has_parameter(prefix + "bias") ? l.g.add(y, l.parameter(prefix + "bias")) : y;
}

std::string write_activation(OnnxLayer& l, const std::string& x, const std::string& kind, double slope,
                             const std::string& prefix) {
  GraphWriter& g = l.g;
  // Activations that are one node of ONNX.
  static const std::map<std::string, const char*> kNodes = {{"relu", "Relu"}, {"sigmoid", "Sigmoid"},
                                                            {"tanh", "Tanh"}, {"elu", "Elu"},
                                                            {"selu", "Selu"}, {"softplus", "Softplus"}};
  if (const auto node = kNodes.find(kind); node != kNodes.end()) return g.node(node->second, {x});
  if (kind == "none") return x;
  if (kind == "leaky_relu") return g.node("LeakyRelu", {x}, {{"alpha", static_cast<float>(slope)}});
  if (kind == "silu") return g.multiply(x, g.node("Sigmoid", {x}));
  if (kind == "mish") return g.multiply(x, g.node("Tanh", {g.node("Softplus", {x})}));
  if (kind == "prelu") return g.node("PRelu", {x, l.parameter(prefix + "weight")});
  if (kind == "gelu") {  // x times the normal distribution
    const std::string erf = g.node("Erf", {g.multiply(x, g.number(std::sqrt(0.5)))});
    return g.multiply(g.multiply(x, g.number(0.5)), g.add(erf, g.number(1)));
  }
  if (kind == "swish_layernorm") return g.multiply(x, g.node("Sigmoid", {layer_norm(l, x, 1e-5, prefix + "norm.")}));
  l.refuse("its activation \"", kind, "\" is not known here");
}

void add_dense_layers(LayerTable& table) {
  table.insert({{"mlp", write_mlp},
                {"mlp_batch_norm", write_mlp},
                {"linear", write_linear_layer},
                {"projection", write_projection},
                {"activation", write_activation_layer},
                {"affine", write_affine},
                {"dice", write_dice},
                {"softmax", write_softmax},
                {"dropout", write_same},
                {"layer_norm", write_layer_norm},
                {"l2_norm", write_l2_norm},
                {"swish_layer_norm", write_swish_layer_norm},
                {"split_columns", write_split_columns},
                {"batch_norm", write_batch_norm},
                {"dot_interaction", write_dot_interaction},
                {"cross", write_cross},
                {"fm", write_fm},
                {"bilinear", write_bilinear},
                {"matmul", write_matmul},
                {"field_linear", write_field_linear},
                {"field_products", write_field_products},
                {"field_sum", write_field_sum},
                {"field_scale", write_field_scale},
                {"numeric_embedding", write_numeric_embedding},
                {"concat", write_concat},
                {"sum", write_elementwise},
                {"product", write_elementwise},
                {"logit_product", write_logit_product},
                {"gate", write_gate},
                {"experts", write_experts},
                {"mixture", write_mixture}});
}

}  // namespace tessera::cli
