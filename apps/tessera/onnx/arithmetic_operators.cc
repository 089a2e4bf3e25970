// Sums, products and the formulas that programs make of them, such as x · sigmoid(x).
#include <onnx/onnx_pb.h>

#include <cmath>
#include <optional>

#include "onnx/importer.h"

namespace tessera::cli {
namespace {

using Values = Importer::Values;

constexpr const char* kErf = "?Erf";    // of x / √2
constexpr const char* kNorm = "?norm";  // of a sample's values, at least its option eps

// One number for each column.
std::vector<double> by_column(const Importer& im, const onnx::NodeProto& node, const OnnxConstant& c,
                              const ImportValue& x) {
  const int64_t width = x.width();
  const auto columns = static_cast<size_t>(width);
  if (c.values.size() == 1 && c.shape.size() <= (x.flat ? 1 : 2)) return std::vector<double>(columns, c.values[0]);
  const bool last = !c.shape.empty() && c.shape.back() == width;
  if (c.values.size() != columns || !last || x.flat)
    im.refuse(node, "cannot become a layer, because it combines ", width, " values of a sample with a constant of ",
              c.values.size());
  return c.values;
}

ImportValue times(Importer& im, const onnx::NodeProto& node, const ImportValue& x, const std::vector<double>& by) {
  const std::vector<double> none(by.size(), 0);
  ImportValue out = im.layers.scaled(x, by, none, Importer::described(node));
  out.sole = x.sole && im.is_sole(node);
  return out;
}

ImportValue plus(Importer& im, const onnx::NodeProto& node, const ImportValue& x, const std::vector<double>& more) {
  const std::vector<double> ones(more.size(), 1);
  ImportValue out = im.layers.scaled(x, ones, more, Importer::described(node));
  out.sole = x.sole && im.is_sole(node);
  return out;
}

// A layer that combines two values column by column.
ImportValue combined(Importer& im, const onnx::NodeProto& node, const char* type, const ImportValue& a,
                     const ImportValue& b) {
  if (a.width() != b.width() || a.flat != b.flat)
    im.refuse(node, "cannot become a layer, because its inputs have ", a.width(), " and ", b.width(),
              a.flat == b.flat ? " values of a sample" : " values of a sample, one of them as [batch]");
  ImportValue x = a;
  x.scale.clear(), x.shift.clear();
  x.parts = {{im.layers.single(a), a.width()}, {im.layers.single(b), b.width()}};
  return im.layer(node, type, x, a.width());
}

// The activation of this kind that makes the value; nullptr: it is something else.
const ImportedLayer* activation_of(const Importer& im, const ImportValue& x, const char* kind) {
  if (!x.is_plain() || x.parts.size() != 1) return nullptr;
  const ImportedLayer* layer = im.layers.maker(x.parts[0].name);
  const bool is = layer != nullptr && layer->type == "activation" && layer->options.value("kind", "") == kind;
  return is ? layer : nullptr;
}

const ImportedLayer* step_of(const Importer& im, const ImportValue& x, const char* step) {
  if (x.parts.size() != 1) return nullptr;
  const ImportedLayer* layer = im.layers.maker(x.parts[0].name);
  return layer != nullptr && layer->type == step ? layer : nullptr;
}

// x · f as an activation of x: silu, mish or gelu; nullopt: it is none.
std::optional<ImportValue> activation_by_formula(Importer& im, const onnx::NodeProto& node, const ImportValue& x,
                                                 const ImportValue& f) {
  const auto of_x = [&](const ImportedLayer* layer) { return layer != nullptr && layer->inputs == x.parts; };
  const auto made = [&](const char* kind) {
    ImportValue plain = x;
    plain.scale.clear(), plain.shift.clear();
    return im.layer(node, "activation", plain, x.width(), {{"kind", kind}});
  };
  if (x.is_plain() && of_x(activation_of(im, f, "sigmoid"))) return made("silu");
  const ImportedLayer* outer = activation_of(im, f, "tanh");
  const ImportedLayer* inner =
      outer != nullptr && outer->inputs.size() == 1 ? im.layers.maker(outer->inputs[0].name) : nullptr;
  if (x.is_plain() && of_x(inner) && inner->type == "activation" && inner->options.value("kind", "") == "softplus")
    return made("mish");
  // gelu(x) = x · 0.5 · (1 + erf(x / √2))
  const auto width = static_cast<size_t>(x.width());
  if (!of_x(step_of(im, f, kErf)) || !f.is_uniform(0, width) || !x.is_uniform(0, width)) return std::nullopt;
  if (std::abs(f.scale_at(0) - f.shift_at(0)) > 1e-6 || x.shift_at(0) != 0) return std::nullopt;
  const std::vector<double> by(width, 2 * f.scale_at(0) * x.scale_at(0));
  return times(im, node, made("gelu"), std::abs(by[0] - 1) < 1e-6 ? std::vector<double>(width, 1) : by);
}

Values multiply(Importer& im, const onnx::NodeProto& node) {
  for (const int c : {0, 1}) {
    const OnnxConstant* by = im.constant(node, c);
    if (by == nullptr) continue;
    const ImportValue& x = im.value(node, 1 - c);
    return {times(im, node, x, by_column(im, node, *by, x))};
  }
  const ImportValue a = im.value(node, 0), b = im.value(node, 1);
  if (auto out = activation_by_formula(im, node, a, b)) return {*out};
  if (auto out = activation_by_formula(im, node, b, a)) return {*out};
  for (const auto& [one, all] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (one->width() != 1 || all->width() == 1 || one->flat) continue;
    ImportValue both = *one;  // a number for each sample
    both.scale.clear(), both.shift.clear();
    both.parts = {{im.layers.single(*one), 1}, {im.layers.single(*all), all->width()}};
    return {im.layer(node, "mixture", both, all->width(), {{"softmax", false}})};
  }
  return {combined(im, node, "product", a, b)};
}

Values add(Importer& im, const onnx::NodeProto& node) {
  for (const int c : {0, 1}) {
    const OnnxConstant* more = im.constant(node, c);
    if (more == nullptr) continue;
    const ImportValue& x = im.value(node, 1 - c);
    return {plus(im, node, x, by_column(im, node, *more, x))};
  }
  return {combined(im, node, "sum", im.value(node, 0), im.value(node, 1))};
}

Values sum(Importer& im, const onnx::NodeProto& node) {
  ImportValue out = im.value(node, 0);
  for (int k = 1; k < node.input_size(); ++k) out = combined(im, node, "sum", out, im.value(node, k));
  return {out};
}

ImportValue negative(Importer& im, const onnx::NodeProto& node, ImportValue x) {
  x.sole = false;  // the layer before it stays as it is
  return im.layers.scaled(x, std::vector<double>(static_cast<size_t>(x.width()), -1),
                          std::vector<double>(static_cast<size_t>(x.width()), 0), Importer::described(node));
}

Values negate(Importer& im, const onnx::NodeProto& node) { return {negative(im, node, im.value(node, 0))}; }

Values subtract(Importer& im, const onnx::NodeProto& node) {
  if (const OnnxConstant* less = im.constant(node, 1)) {
    const ImportValue& x = im.value(node, 0);
    std::vector<double> more = by_column(im, node, *less, x);
    for (double& v : more) v = -v;
    return {plus(im, node, x, more)};
  }
  const ImportValue b = negative(im, node, im.value(node, 1));
  if (const OnnxConstant* from = im.constant(node, 0)) return {plus(im, node, b, by_column(im, node, *from, b))};
  return {combined(im, node, "sum", im.value(node, 0), b)};
}

Values divide(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  if (const OnnxConstant* by = im.constant(node, 1)) {
    std::vector<double> factors = by_column(im, node, *by, x);
    for (double& v : factors) v = 1 / v;
    return {times(im, node, x, factors)};
  }
  const ImportValue& by = im.value(node, 1);
  const ImportedLayer* norm = step_of(im, by, kNorm);
  if (norm == nullptr || norm->inputs != x.parts || !x.is_plain() || !by.is_plain())
    im.refuse(node,
              "has no counterpart among the layers of docs/layers.md, except by a constant or by the length of x");
  return {im.layer(node, "l2_norm", x, x.width(), {{"eps", norm->options.value("eps", 1e-12)}})};
}

Values power(Importer& im, const onnx::NodeProto& node) {
  const double exponent = im.number(node, 1, "exponent");
  if (exponent != 2)
    im.refuse(node, "has no counterpart among the layers of docs/layers.md, except with the exponent 2");
  return {combined(im, node, "product", im.value(node, 0), im.value(node, 0))};
}

Values erf(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  const auto width = static_cast<size_t>(x.width());
  if (!x.is_uniform(0, width) || x.shift_at(0) != 0 || std::abs(x.scale_at(0) - std::sqrt(0.5)) > 1e-5)
    im.refuse(node, "has no counterpart among the layers of docs/layers.md, except in Gelu's formula");
  ImportValue plain = x;
  plain.scale.clear();
  return {im.layer(node, kErf, plain, x.width())};
}

// ---- over the values of a sample

// The axes that a reduction names, as an attribute or as an input, are those of a sample's values.
void need_row_reduction(const Importer& im, const onnx::NodeProto& node) {
  std::vector<int64_t> axes = integers_attribute(node, "axes");
  if (const OnnxConstant* given = im.constant(node, 1)) axes = whole_numbers(*given);
  if (axes.size() != 1)
    im.refuse(node, "cannot become a layer, because it reduces other axes than that of a sample's values");
  im.need_last_axis(node, axes[0], im.value(node, 0));
}

ImportValue flat_unless_kept(const onnx::NodeProto& node, ImportValue x) {
  x.flat = integer_attribute(node, "keepdims", 1) == 0;
  return x;
}

// The sum of a sample's values: of a product of two values as their matrix product, otherwise column by column.
ImportValue row_sum(Importer& im, const onnx::NodeProto& node) {
  need_row_reduction(im, node);
  const ImportValue x = im.layers.plain(im.value(node, 0));
  if (x.width() == 1) return x;
  const ImportedLayer* made = x.parts.size() == 1 ? im.layers.maker(x.parts[0].name) : nullptr;
  ImportValue of = x;
  if (made != nullptr && made->type == "product") {
    of.parts = made->inputs;
    return im.layer(node, "matmul", of, 1, {{"dim", x.width()}});
  }
  ImportValue columns =
      im.layer(node, "split_columns", x, 1, {{"widths", std::vector<int64_t>(static_cast<size_t>(x.width()), 1)}});
  for (int64_t c = 1; c < x.width(); ++c) columns.parts.push_back({str_cat(columns.parts[0].name, ':', c), 1});
  return im.layer(node, "sum", columns, 1);
}

Values reduce_sum(Importer& im, const onnx::NodeProto& node) { return {flat_unless_kept(node, row_sum(im, node))}; }

Values reduce_mean(Importer& im, const onnx::NodeProto& node) {
  const double share = 1 / static_cast<double>(im.value(node, 0).width());
  return {flat_unless_kept(node, times(im, node, row_sum(im, node), {share}))};
}

Values reduce_l2(Importer& im, const onnx::NodeProto& node) {
  need_row_reduction(im, node);
  return {flat_unless_kept(node, im.layer(node, kNorm, im.value(node, 0), 1))};
}

}  // namespace

bool is_length(const Importer& im, const ImportValue& x) { return step_of(im, x, kNorm) != nullptr; }

Importer::Values at_least(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  const ImportedLayer* norm = step_of(im, x, kNorm);
  const OnnxConstant* least = im.constant(node, 1);
  const bool more = node.input_size() > 2 && !node.input(2).empty();
  if (norm == nullptr || least == nullptr || least->values.size() != 1 || more || !x.is_plain())
    im.refuse(node, "has no counterpart among the layers of docs/layers.md");
  ImportValue of = x;
  of.parts = norm->inputs;
  return {im.layer(node, kNorm, of, 1, {{"eps", least->values[0]}})};
}

void add_arithmetic_operators(OperatorTable& table) {
  table.insert({{"Mul", multiply},
                {"Add", add},
                {"Sum", sum},
                {"Neg", negate},
                {"Sub", subtract},
                {"Div", divide},
                {"Pow", power},
                {"Erf", erf},
                {"ReduceSum", reduce_sum},
                {"ReduceMean", reduce_mean},
                {"ReduceL2", reduce_l2},
                {"Max", at_least}});
}

}  // namespace tessera::cli
