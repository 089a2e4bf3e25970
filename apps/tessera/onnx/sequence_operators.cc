// Operators over sequences, [batch, length, width] in any order: attention among the rows of a sample, and what makes
// one row of them. All others compute each row by itself, as layers do.
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "onnx/import_axes.h"
#include "onnx/importer.h"

namespace tessera::cli {
namespace {

using Values = Importer::Values;

constexpr const char* kRowScores = "?scores";  // products of queries and keys, perhaps after a softmax

[[noreturn]] void refuse_sequence(const Importer& im, const onnx::NodeProto& node) {
  im.refuse(node, "cannot become a layer with these shapes of a sequence");
}

// Returns a value of each sample, [batch, width] or [batch, 1, width].
ImportValue of_samples(ImportValue x, bool keeps_rows) {
  x.sequence = false;
  x.dims.clear(), x.factors.clear();
  x.form = keeps_rows ? ValueForm::kMatrix : ValueForm::kRow;
  x.rows = keeps_rows ? 1 : 0;
  return x;
}

ImportValue like(ImportValue made, const ImportValue& x) {
  made.rows = x.rows;
  begin_axes(made);
  return made;
}

// Returns a sequence whose columns a later node may split, transpose or join.
ImportValue shaped(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = im.matrix(node, 0);
  if (!x.sequence || x.form != ValueForm::kRow) refuse_sequence(im, node);
  x.sole = false;
  return x;
}

std::vector<int64_t> axes_of(Importer& im, const onnx::NodeProto& node, int input, size_t rank) {
  const OnnxConstant* given = im.constant(node, input);
  std::vector<int64_t> out = given ? whole_numbers(*given) : integers_attribute(node, "axes");
  for (int64_t& axis : out) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  std::sort(out.begin(), out.end());
  if (out.empty() || out.front() < 0 || out.back() >= static_cast<int64_t>(rank)) refuse_sequence(im, node);
  return out;
}

Values pass(Importer& im, const onnx::NodeProto& node) { return {im.matrix(node, 0)}; }

// Joins all rows of each sample to one row, if the shape says so. The number of rows must be known.
Values joined_if_wide(Importer& im, const onnx::NodeProto& node, const ImportValue& x) {
  Axes all = {kLengthAxis};
  const Axes parts = all_parts(x);
  all.insert(all.end(), parts.begin(), parts.end());
  const bool wide = x.dims == std::vector<Axes>{{kBatchAxis}, all};
  return {wide ? im.as_columns(node, x) : x};
}

Values sequence_transpose(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = shaped(im, node);
  const std::vector<int64_t> order = integers_attribute(node, "perm");
  if (x.flat || order.size() != x.dims.size()) refuse_sequence(im, node);
  std::vector<Axes> dims;
  for (const int64_t d : order) {
    if (d < 0 || d >= std::ssize(order)) refuse_sequence(im, node);
    dims.push_back(x.dims[static_cast<size_t>(d)]);
  }
  x.dims = dims;
  return {x};
}

Values sequence_reshape(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = shaped(im, node);
  if (x.flat || !reshape_axes(x, im.needed_constant(node, 1, "shape").values)) refuse_sequence(im, node);
  return joined_if_wide(im, node, x);
}

Values sequence_flatten(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = shaped(im, node);
  if (integer_attribute(node, "axis", 1) != 1 || !reshape_axes(x, {kBatchSize, -1})) refuse_sequence(im, node);
  return {im.as_columns(node, x)};
}

Values sequence_squeeze(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = shaped(im, node);
  const std::vector<int64_t> axes = axes_of(im, node, 1, x.dims.size());
  if (x.width() == 1 && ends_in_columns(x) && axes == std::vector<int64_t>{std::ssize(x.dims) - 1} && !x.flat)
    return im.row_by_row(node);
  for (size_t k = axes.size(); k-- > 0;) {
    if (size_of(x, x.dims[static_cast<size_t>(axes[k])]) != 1) refuse_sequence(im, node);
    x.dims.erase(x.dims.begin() + axes[k]);
  }
  return {x};
}

Values sequence_unsqueeze(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = shaped(im, node);
  const std::vector<int64_t> axes = axes_of(im, node, 1, x.dims.size() + 1);
  if (axes.size() != 1) refuse_sequence(im, node);
  if (x.flat && axes[0] != std::ssize(x.dims)) refuse_sequence(im, node);
  x.dims.insert(x.dims.begin() + axes[0], x.flat ? Axes{0} : Axes{});
  x.flat = false;
  return {x};
}

// ---- attention

// Returns the value under one name, and its factor.
ValuePart factored(Importer& im, ImportValue x, double& factor) {
  if (x.shift.empty() && !x.scale.empty() && x.is_uniform(0, static_cast<size_t>(x.width()))) {
    factor *= x.scale[0];
    x.scale.clear();
  }
  return {im.layers.single(x), x.width()};
}

ImportValue scores(Importer& im, const onnx::NodeProto& node, std::vector<ValuePart> inputs, double scale, bool softmax,
                   const ImportValue& of, int64_t heads) {
  ImportValue both{.parts = std::move(inputs)};
  ImportValue out = im.layer(node, kRowScores, both, 1, {{"scale", scale}, {"softmax", softmax}});
  out.form = ValueForm::kScores;
  out.sequence = true;
  out.heads = heads;
  out.rows = of.rows;
  out.dims.resize(of.dims.size());
  return out;
}

const ImportedLayer& scores_of(const Importer& im, const onnx::NodeProto& node, const ImportValue& x, bool softmax) {
  const ImportedLayer* made = x.form == ValueForm::kScores ? im.layers.maker(x.parts[0].name) : nullptr;
  if (made == nullptr || made->options.at("softmax") != softmax) refuse_sequence(im, node);
  return *made;
}

Values sequence_matmul(Importer& im, const onnx::NodeProto& node) {
  if (im.constant(node, 1) != nullptr) return im.row_by_row(node);
  const ImportValue &a = im.matrix(node, 0), &b = im.matrix(node, 1);
  const int64_t heads = b.sequence ? heads_of(b, a.form != ValueForm::kScores) : 0;
  if (heads == 0 || a.dims.size() != b.dims.size() || a.rows != b.rows) refuse_sequence(im, node);
  if (a.form == ValueForm::kRow) {
    if (!a.sequence || heads_of(a, false) != heads || a.width() != b.width()) refuse_sequence(im, node);
    double scale = 1;
    const ValuePart queries = factored(im, a, scale), keys = factored(im, b, scale);
    return {scores(im, node, {queries, keys}, scale, false, a, heads)};
  }
  const ImportedLayer weights = scores_of(im, node, a, true);
  if (a.heads != heads) refuse_sequence(im, node);
  ImportValue of{.parts = weights.inputs};
  of.parts.push_back({im.layers.single(b), b.width()});
  ImportValue out = im.layer(node, "attention", of, b.width(),
                             {{"heads", heads}, {"causal", false}, {"scale", weights.options.at("scale")}});
  out.sequence = true;
  out.rows = b.rows;
  out.dims = b.dims;
  out.factors = b.factors;
  return {out};
}

Values sequence_softmax(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  if (x.form != ValueForm::kScores) return im.row_by_row(node);
  const int64_t axis = integer_attribute(node, "axis", -1), last = std::ssize(x.dims) - 1;
  const ImportedLayer before = scores_of(im, node, x, false);
  if (axis != -1 && axis != last) refuse_sequence(im, node);
  return {scores(im, node, before.inputs, before.options.at("scale"), true, x, x.heads)};
}

// Translates a product or quotient of one number with queries, keys or scores in heads; otherwise goes row by row.
template <bool Divides>
Values sequence_scale(Importer& im, const onnx::NodeProto& node) {
  for (const int c : {0, 1}) {
    const OnnxConstant* by = im.constant(node, c);
    if (by == nullptr) continue;
    ImportValue x = im.matrix(node, 1 - c);
    if (x.form == ValueForm::kRow && ends_in_columns(x)) break;
    if (by->values.size() != 1 || (Divides && c == 0)) refuse_sequence(im, node);
    const double factor = Divides ? 1 / by->values[0] : by->values[0];
    if (x.form == ValueForm::kScores) {
      const ImportedLayer before = scores_of(im, node, x, false);
      return {scores(im, node, before.inputs, factor * before.options.at("scale").get<double>(), false, x, x.heads)};
    }
    const auto width = static_cast<size_t>(x.width());
    return {im.layers.scaled(x, std::vector<double>(width, factor), std::vector<double>(width, 0),
                             Importer::described(node))};
  }
  return im.row_by_row(node);
}

// ---- a sequence and a row of each sample

// The sum with a constant for each row of a sample and each column.
ImportValue with_positions(Importer& im, const onnx::NodeProto& node, const ImportValue& x, const OnnxConstant& rows) {
  ImportedLayer layer{
      .type = "position_embedding", .inputs = {{im.layers.single(x), x.width()}}, .options = {{"length", x.rows}}};
  const std::vector<float> weight(rows.values.begin(), rows.values.end());
  layer.parameters["weight"] = Tensor::from(std::span<const float>(weight), {x.rows, x.width()});
  layer.node = Importer::described(node);
  return like(im.layers.add("position_embedding", std::move(layer), x.width()), x);
}

Values sequence_add(Importer& im, const onnx::NodeProto& node) {
  for (const int s : {0, 1}) {
    if (im.constant(node, s) != nullptr) continue;
    const ImportValue& x = im.matrix(node, s);
    if (const OnnxConstant* more = im.constant(node, 1 - s)) {
      const bool each = is_in_order(x) && x.rows > 1 && std::ssize(more->values) == x.rows * x.width();
      return each ? Values{with_positions(im, node, x, *more)} : im.row_by_row(node);
    }
    const ImportValue& row = im.matrix(node, 1 - s);
    if (!x.sequence || !is_in_order(x) || row.sequence || row.form != ValueForm::kMatrix || row.width() != x.width())
      continue;
    ImportValue both = x;
    both.scale.clear(), both.shift.clear();
    both.parts = {{im.layers.single(x), x.width()}, {im.layers.single(row), row.width()}};
    return {like(im.layer(node, "add", both, x.width()), x)};
  }
  return im.row_by_row(node);
}

// ---- one row of a sequence's rows

// True if `axis` is the axis of the rows, and the other axes of the value are in order.
bool is_row_axis(const ImportValue& x, int64_t axis) {
  if (!x.sequence || x.form != ValueForm::kRow || x.flat || axis < 0 || axis >= std::ssize(x.dims)) return false;
  std::vector<Axes> others = x.dims;
  others.erase(others.begin() + axis);
  return x.dims[static_cast<size_t>(axis)] == Axes{kLengthAxis} &&
         others == std::vector<Axes>{{kBatchAxis}, all_parts(x)};
}

template <const char* Pooling>
Values pooled(Importer& im, const onnx::NodeProto& node) {
  const ImportValue x = shaped(im, node);
  const std::vector<int64_t> axes = axes_of(im, node, 1, x.dims.size());
  if (axes.size() != 1 || !is_row_axis(x, axes[0])) return im.row_by_row(node);
  const bool keeps = integer_attribute(node, "keepdims", 1) != 0;
  if (keeps && axes[0] != 1) refuse_sequence(im, node);
  ImportValue of{.parts = {{im.layers.single(x), x.width()}}};
  return {of_samples(im.layer(node, Pooling, of, x.width()), keeps)};
}
constexpr char kSum[] = "sum_pooling", kMean[] = "mean_pooling", kMax[] = "max_pooling";

// Takes row `place` of each sample. If samples have different numbers of rows, this must be the last row.
ImportValue one_row(Importer& im, const onnx::NodeProto& node, const ImportValue& x, int64_t place) {
  const int64_t at = place < 0 ? place + x.rows : place;
  if (x.rows > 0 && at >= 0 && at < x.rows) return im.layers.columns(im.as_columns(node, x), at * x.width(), x.width());
  if (x.rows > 0 || place != -1)
    im.refuse(node, "cannot become a layer, because of a sequence only the last row can be chosen, by -1");
  ImportValue of{.parts = {{im.layers.single(x), x.width()}}};
  return of_samples(im.layer(node, "last_row", of, x.width()), false);
}

// Takes place `place` of the outermost part of the width, such as the queries among queries, keys and values.
ImportValue one_part(Importer& im, const onnx::NodeProto& node, const ImportValue& x, size_t axis, int64_t place) {
  const int64_t places = x.factors[0], width = x.width() / places;
  if (x.dims[axis] != Axes{0} || x.factors.size() < 2 || place < 0 || place >= places) refuse_sequence(im, node);
  ImportValue out = im.layers.columns(x, place * width, width);
  out.sequence = true;
  out.rows = x.rows;
  out.factors.assign(x.factors.begin() + 1, x.factors.end());
  out.dims = x.dims;
  out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(axis));
  for (Axes& d : out.dims) {
    for (int& part : d) part -= part > 0 ? 1 : 0;
  }
  return out;
}

Values sequence_gather(Importer& im, const onnx::NodeProto& node) {
  const ImportValue x = shaped(im, node);
  const OnnxConstant& places = im.needed_constant(node, 1, "list of rows");
  const int64_t given = integer_attribute(node, "axis", 0), axis = given < 0 ? given + std::ssize(x.dims) : given;
  if (axis < 0 || axis >= std::ssize(x.dims)) refuse_sequence(im, node);
  const bool one = places.values.size() == 1 && places.shape.size() <= 1;
  if (!is_row_axis(x, axis) && ends_in_columns(x) && axis == std::ssize(x.dims) - 1) return im.row_by_row(node);
  if (!one) refuse_sequence(im, node);
  const int64_t place = whole_number(places.values[0]);
  if (!is_row_axis(x, axis)) {
    if (!places.shape.empty()) refuse_sequence(im, node);
    return {one_part(im, node, x, static_cast<size_t>(axis), place)};
  }
  const ImportValue row = one_row(im, node, x, place);
  if (!places.shape.empty() && axis != 1) refuse_sequence(im, node);
  return {places.shape.empty() ? row : of_samples(row, true)};
}

Values sequence_slice(Importer& im, const onnx::NodeProto& node) {
  const ImportValue x = shaped(im, node);
  const auto number = [&](int input, const char* name) {
    const OnnxConstant* given = im.constant(node, input);
    const std::vector<int64_t> list = given ? whole_numbers(*given) : integers_attribute(node, name);
    return list.size() == 1 ? list[0] : int64_t{1} << 40;
  };
  const int64_t axis = number(3, "axes");
  if (!is_row_axis(x, axis)) return im.row_by_row(node);
  const int64_t from = number(1, "starts"), to = number(2, "ends"), step = number(4, "steps");
  if (from == 0 && to >= int64_t{1} << 31) return {x};  // all rows
  const bool last = from == -1 && to >= int64_t{1} << 31;
  if (axis != 1 || (!last && to != from + 1) || (step != 1 && node.input_size() > 4)) refuse_sequence(im, node);
  return {of_samples(one_row(im, node, x, from), true)};
}

Values no_sequence(Importer& im, const onnx::NodeProto& node) { refuse_sequence(im, node); }

}  // namespace

void add_sequence_operators(OperatorTable& table) {
  table.insert({{"Identity", pass},
                {"Dropout", pass},
                {"BatchNormalization", no_sequence},
                {"Unsqueeze", sequence_unsqueeze},
                {"Expand", no_sequence},
                {"Squeeze", sequence_squeeze},
                {"Transpose", sequence_transpose},
                {"Reshape", sequence_reshape},
                {"Flatten", sequence_flatten},
                {"MatMul", sequence_matmul},
                {"Softmax", sequence_softmax},
                {"Mul", sequence_scale<false>},
                {"Div", sequence_scale<true>},
                {"Add", sequence_add},
                {"ReduceSum", pooled<kSum>},
                {"ReduceMean", pooled<kMean>},
                {"ReduceMax", pooled<kMax>},
                {"Gather", sequence_gather},
                {"Slice", sequence_slice}});
}

}  // namespace tessera::cli
