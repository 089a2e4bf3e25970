// The layer "attention" over padded rows: a matrix of all pairs of a sample's rows, with a mask.
#include <cmath>

#include "onnx/layer.h"

namespace tessera::cli {
namespace {

struct Mask {
  bool causal = true;
  int64_t window = -1, contextual = 0, full = 0;
  std::string targets;  // int64 [batch, 1, 1]; empty: none
};

// The rows that row i sees, as AttentionMask in plugins/dense/attention_mask.h says. `i` is int64 [.., queries, 1], `j`
// int64 [1, 1, keys], `rows` int64 [batch, 1, 1].
std::string visible(GraphWriter& g, const Mask& mask, const std::string& i, const std::string& j,
                    const std::string& rows) {
  const auto less = [&](const std::string& a, const std::string& b) { return g.node("Less", {a, b}); };
  const auto both = [&](const std::string& a, const std::string& b) { return g.node("And", {a, b}); };
  const auto either = [&](const std::string& a, const std::string& b) { return g.node("Or", {a, b}); };
  const auto other = [&](const std::string& a) { return g.node("Not", {a}); };
  const std::string window = g.integer(mask.window), zero = g.integer(0);
  const std::string exists = less(j, rows);
  if (!mask.causal) {
    if (mask.window < 0) return both(exists, g.node("Equal", {i, i}));
    return both(exists, both(other(less(j, g.subtract(i, window))), other(less(g.add(i, window), j))));
  }
  const std::string front = g.integer(std::max<int64_t>(mask.contextual - 1, 0));
  std::string top = g.subtract(rows, front);
  if (!mask.targets.empty()) top = g.subtract(top, mask.targets);
  const std::string at = g.minimum(g.maximum(g.subtract(i, front), zero), top);
  // The first row whose position is at least `a`, which is not above the top.
  const auto first_at = [&](const std::string& a) {
    const std::string in_front = other(less(g.minimum(zero, top), a));
    return g.node("Where", {in_front, zero, g.minimum(rows, g.add(a, front))});
  };
  std::string sees = less(j, first_at(at));
  if (mask.window >= 0) {
    std::string near = other(less(j, first_at(g.subtract(at, window))));
    if (mask.full > 0) near = either(near, other(less(at, g.subtract(top, g.integer(mask.full)))));
    sees = both(sees, near);
  }
  if (mask.contextual > 0) sees = g.node("Where", {g.node("Equal", {at, zero}), less(j, first_at(top)), sees});
  return both(exists, either(sees, g.node("Equal", {i, j})));
}

// [batch, rows, heads * width] as [batch, heads, rows, width].
std::string in_heads(GraphWriter& g, const OnnxValue& x, int64_t heads) {
  return g.transpose(g.reshape(x.name, {0, 0, heads, x.width / heads}), {0, 2, 1, 3});
}

Mask mask_of(OnnxLayer& l, size_t targets) {
  Mask mask{.causal = l.option("causal", true)};
  if (l.has("window")) mask.window = l.option<int64_t>("window", 0);
  mask.contextual = l.option<int64_t>("contextual", 0);
  mask.full = l.option<int64_t>("full", 0);
  if (!l.option("targets", false)) return mask;
  const OnnxValue& of = l.inputs.at(targets);
  mask.targets = of.rows       ? lengths_of(l.g, *of.rows)
                 : of.integers ? l.g.unsqueeze(of.name, 1)
                               : l.g.reshape(l.g.integer(1), {1, 1, 1});
  return mask;
}

OnnxValues write_attention(OnnxLayer& l) {
  GraphWriter& g = l.g;
  const OnnxValue q = l.inputs.at(0), k = l.inputs.at(1), v = l.inputs.at(2);
  const auto heads = l.option<int64_t>("heads", 1), length = l.option<int64_t>("length", 0);
  const auto kind = l.option<std::string>("kind", "softmax"), bias = l.option<std::string>("bias", "none");
  if (bias == "time" || bias == "both") l.refuse("its bias \"", bias, "\" of times is not supported");
  l.ignore({"last_rows", "buckets", "next_times", "dropout"});
  const int64_t head_width = q.width / heads;
  double scale = l.option("scale", 0.0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(head_width));
  const Mask mask = mask_of(l, 3);
  // Every row of a sample sees every other one, and none is padding.
  const bool all = !mask.causal && mask.window < 0 && q.rows->fixed > 0 && k.rows->fixed > 0;
  const std::string keys = lengths_of(g, *k.rows);
  // Queries are the last rows of a sample.
  const std::string i = g.add(positions_of(g, *q.rows), g.subtract(keys, lengths_of(g, *q.rows)));
  const std::string j = g.transpose(positions_of(g, *k.rows), {0, 2, 1});
  const std::string sees = g.unsqueeze(visible(g, mask, i, j, keys), 1);
  const std::string turned = g.transpose(in_heads(g, k, heads), {0, 1, 3, 2});
  std::string logits = g.multiply(g.node("MatMul", {in_heads(g, q, heads), turned}), g.number(scale));
  if (bias == "position") {
    const std::string far = g.add(g.subtract(j, i), g.integer(length - 1));
    const std::string at = g.maximum(g.minimum(far, g.integer(2 * length - 2)), g.integer(0));
    const std::string checked = g.add(at, if_longer(g, *k.rows, length, 2 * length - 1));
    logits = g.add(logits, g.unsqueeze(g.node("Gather", {l.parameter("position_bias"), checked}), 1));
  }
  std::string weights;
  if (kind == "softmax") {
    const std::string seen = all ? logits : g.node("Where", {sees, logits, g.number(-1e30)});
    weights = g.node("Softmax", {seen}, {{"axis", int64_t{-1}}});
  } else {
    weights = kind == "silu" ? g.multiply(logits, g.node("Sigmoid", {logits})) : logits;
    weights = g.divide(weights, g.number(static_cast<double>(length)));
  }
  if (!all) weights = g.node("Where", {sees, weights, g.number(0)});
  const std::string sums = g.transpose(g.node("MatMul", {weights, in_heads(g, v, heads)}), {0, 2, 1, 3});
  return {{g.reshape(sums, {0, 0, v.width}), v.width, q.rows}};
}

}  // namespace

void add_attention(LayerTable& table) { table.emplace("attention", write_attention); }

}  // namespace tessera::cli
