// Operators over sequences, [batch, length, width]: attention among the rows of a sample, and what makes one row of
// them. All others compute each row by itself, as layers do.
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "onnx/importer.h"

namespace tessera::cli {
namespace {

using Values = Importer::Values;

constexpr const char* kRowScores = "?scores";  // products of queries and keys, perhaps after a softmax

[[noreturn]] void refuse_sequence(const Importer& im, const onnx::NodeProto& node) {
  im.refuse(node, "cannot become a layer with these shapes of a sequence");
}

ImportValue with_form(ImportValue x, ValueForm form) {
  x.form = form;
  x.sole = false;
  return x;
}

// A value of each sample, [batch, width], or [batch, 1, width].
ImportValue of_samples(ImportValue x, bool keeps_rows) {
  x.sequence = false;
  x.heads = 0;
  x.form = keeps_rows ? ValueForm::kMatrix : ValueForm::kRow;
  x.rows = keeps_rows ? 1 : 0;
  return x;
}

bool is_plain_sequence(const ImportValue& x) { return x.sequence && x.form == ValueForm::kRow && !x.flat; }

Values pass(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  return x.form == ValueForm::kRow ? im.row_by_row(node) : Values{x};
}

// [batch, length] as [batch, length, 1].
Values sequence_unsqueeze(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = im.matrix(node, 0);
  const OnnxConstant* given = im.constant(node, 1);
  const std::vector<int64_t> axes = given ? whole_numbers(*given) : integers_attribute(node, "axes");
  if (!x.flat || (axes != std::vector<int64_t>{2} && axes != std::vector<int64_t>{-1})) refuse_sequence(im, node);
  x.flat = false;
  return {x};
}

Values no_sequence(Importer& im, const onnx::NodeProto& node) { refuse_sequence(im, node); }

Values sequence_transpose(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  using Order = std::vector<int64_t>;
  const Order order = integers_attribute(node, "perm");
  const auto is = [&](ValueForm form, const Order& wanted) { return x.form == form && order == wanted; };
  if (x.flat) refuse_sequence(im, node);
  if (x.heads == 0 && is(ValueForm::kRow, {0, 2, 1})) return {with_form(x, ValueForm::kTurned)};
  if (x.heads == 0 && is(ValueForm::kTurned, {0, 2, 1})) return {with_form(x, ValueForm::kRow)};
  if (x.heads == 0) refuse_sequence(im, node);
  if (is(ValueForm::kHeads, {0, 2, 1, 3})) return {with_form(x, ValueForm::kHeadsFirst)};
  if (is(ValueForm::kHeads, {0, 2, 3, 1})) return {with_form(x, ValueForm::kTurned)};
  if (is(ValueForm::kHeadsFirst, {0, 2, 1, 3})) return {with_form(x, ValueForm::kHeads)};
  if (is(ValueForm::kHeadsFirst, {0, 1, 3, 2})) return {with_form(x, ValueForm::kTurned)};
  if (is(ValueForm::kTurned, {0, 1, 3, 2})) return {with_form(x, ValueForm::kHeadsFirst)};
  refuse_sequence(im, node);
}

Values sequence_reshape(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = im.matrix(node, 0);
  const std::vector<double> sizes = im.needed_constant(node, 1, "shape").values;
  if (x.flat || sizes.empty() || !im.is_batch(sizes[0], true)) refuse_sequence(im, node);
  const auto is_width = [&](double size) { return size == -1 || size == static_cast<double>(x.width()); };
  if (sizes.size() == 4 && is_plain_sequence(x) && Importer::is_row_count(sizes[1], x)) {
    const int64_t last = whole_number(sizes[3]), known = whole_number(sizes[2]);
    const int64_t heads = known > 0 ? known : last > 0 ? x.width() / last : 0;
    if (heads < 1 || x.width() % heads != 0 || (last != -1 && last * heads != x.width())) refuse_sequence(im, node);
    x.heads = heads;
    return {with_form(x, ValueForm::kHeads)};
  }
  const bool rows = x.form == ValueForm::kHeads || x.form == ValueForm::kRow;
  if (sizes.size() == 3 && rows && Importer::is_row_count(sizes[1], x) && is_width(sizes[2])) {
    x.heads = 0;
    return {with_form(x, ValueForm::kRow)};
  }
  const double all = static_cast<double>(x.rows * x.width());
  if (sizes.size() != 2 || !rows || (sizes[1] != -1 && sizes[1] != all)) refuse_sequence(im, node);
  return {im.as_columns(node, x)};
}

Values sequence_flatten(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  if (!is_plain_sequence(x) || integer_attribute(node, "axis", 1) != 1) refuse_sequence(im, node);
  return {im.as_columns(node, x)};
}

// ---- attention

// The value as one name, and the number that it is multiplied by.
ValuePart factored(Importer& im, ImportValue x, double& factor) {
  if (x.shift.empty() && !x.scale.empty() && x.is_uniform(0, static_cast<size_t>(x.width()))) {
    factor *= x.scale[0];
    x.scale.clear();
  }
  return {im.layers.single(x), x.width()};
}

ImportValue scores(Importer& im, const onnx::NodeProto& node, std::vector<ValuePart> inputs, double scale, bool softmax,
                   const ImportValue& like) {
  ImportValue of;
  of.parts = std::move(inputs);
  ImportValue out = im.layer(node, kRowScores, of, 1, {{"scale", scale}, {"softmax", softmax}});
  out.form = ValueForm::kScores;
  out.sequence = true;
  out.heads = like.heads;
  out.rows = like.rows;
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
  const auto has_rows = [&](const ImportValue& x) {
    return x.sequence && (x.heads > 0 ? x.form == ValueForm::kHeadsFirst : is_plain_sequence(x));
  };
  if (has_rows(a) && b.form == ValueForm::kTurned && a.heads == b.heads && a.width() == b.width()) {
    double scale = 1;
    const ValuePart queries = factored(im, a, scale), keys = factored(im, b, scale);
    return {scores(im, node, {queries, keys}, scale, false, a)};
  }
  if (!has_rows(b) || a.form != ValueForm::kScores || a.heads != b.heads) refuse_sequence(im, node);
  const ImportedLayer weights = scores_of(im, node, a, true);
  ImportValue of;
  of.parts = weights.inputs;
  of.parts.push_back({im.layers.single(b), b.width()});
  ImportValue out =
      im.layer(node, "attention", of, b.width(),
               {{"heads", std::max<int64_t>(1, b.heads)}, {"causal", false}, {"scale", weights.options.at("scale")}});
  out.form = b.form;
  out.sequence = true;
  out.heads = b.heads;
  out.rows = a.rows;
  return {out};
}

Values sequence_softmax(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  if (x.form != ValueForm::kScores) return im.row_by_row(node);
  const int64_t axis = integer_attribute(node, "axis", -1), last = x.heads > 0 ? 3 : 2;
  const ImportedLayer before = scores_of(im, node, x, false);
  if (axis != -1 && axis != last) refuse_sequence(im, node);
  return {scores(im, node, before.inputs, before.options.at("scale"), true, x)};
}

// A product or quotient of queries, keys or scores in heads and one number; otherwise row by row.
template <bool Divides>
Values sequence_scale(Importer& im, const onnx::NodeProto& node) {
  for (const int c : {0, 1}) {
    const OnnxConstant* by = im.constant(node, c);
    if (by == nullptr) continue;
    ImportValue x = im.matrix(node, 1 - c);
    if (x.form == ValueForm::kRow) break;
    if (by->values.size() != 1 || (Divides && c == 0)) refuse_sequence(im, node);
    const double factor = Divides ? 1 / by->values[0] : by->values[0];
    if (x.form == ValueForm::kScores) {
      const ImportedLayer before = scores_of(im, node, x, false);
      return {scores(im, node, before.inputs, factor * before.options.at("scale").get<double>(), false, x)};
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
  ImportedLayer layer;
  layer.type = "position_embedding";
  layer.inputs = {{im.layers.single(x), x.width()}};
  layer.options = {{"length", x.rows}};
  const std::vector<float> weight(rows.values.begin(), rows.values.end());
  layer.parameters["weight"] = Tensor::from(std::span<const float>(weight), {x.rows, x.width()});
  layer.node = Importer::described(node);
  ImportValue out = im.layers.add("position_embedding", std::move(layer), x.width());
  out.sequence = true;
  out.rows = x.rows;
  return out;
}

Values sequence_add(Importer& im, const onnx::NodeProto& node) {
  for (const int s : {0, 1}) {
    if (im.constant(node, s) != nullptr) continue;
    const ImportValue& x = im.matrix(node, s);
    if (const OnnxConstant* more = im.constant(node, 1 - s)) {
      const bool each = is_plain_sequence(x) && x.rows > 1 && std::ssize(more->values) == x.rows * x.width();
      return each ? Values{with_positions(im, node, x, *more)} : im.row_by_row(node);
    }
    const ImportValue& row = im.matrix(node, 1 - s);
    if (!is_plain_sequence(x) || row.sequence || row.form != ValueForm::kMatrix || row.width() != x.width()) continue;
    ImportValue both = x;
    both.scale.clear(), both.shift.clear();
    both.parts = {{im.layers.single(x), x.width()}, {im.layers.single(row), row.width()}};
    ImportValue out = im.layer(node, "add", both, x.width());
    out.sequence = true;
    out.rows = x.rows;
    return {out};
  }
  return im.row_by_row(node);
}

// ---- one row of a sequence's rows

template <const char* Pooling>
Values pooled(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  std::vector<int64_t> axes = integers_attribute(node, "axes");
  if (const OnnxConstant* given = im.constant(node, 1)) axes = whole_numbers(*given);
  const bool rows = axes == std::vector<int64_t>{1} || (axes == std::vector<int64_t>{-2} && !x.flat);
  if (!rows) return im.row_by_row(node);
  if (!is_plain_sequence(x)) refuse_sequence(im, node);
  ImportValue of;
  of.parts = {{im.layers.single(x), x.width()}};
  return {of_samples(im.layer(node, Pooling, of, x.width()), integer_attribute(node, "keepdims", 1) != 0)};
}
constexpr char kSum[] = "sum_pooling", kMean[] = "mean_pooling", kMax[] = "max_pooling";

// Row `place` of each sample, of which only the last one is known if their number differs.
ImportValue one_row(Importer& im, const onnx::NodeProto& node, const ImportValue& x, int64_t place) {
  if (!is_plain_sequence(x)) refuse_sequence(im, node);
  const int64_t at = place < 0 ? place + x.rows : place;
  if (x.rows > 0 && at >= 0 && at < x.rows) return im.layers.columns(im.as_columns(node, x), at * x.width(), x.width());
  if (x.rows > 0 || place != -1)
    im.refuse(node, "cannot become a layer, because of a sequence only the last row can be chosen, by -1");
  ImportValue of;
  of.parts = {{im.layers.single(x), x.width()}};
  return of_samples(im.layer(node, "last_row", of, x.width()), false);
}

Values sequence_gather(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const OnnxConstant& places = im.needed_constant(node, 1, "list of rows");
  if (integer_attribute(node, "axis", 0) != 1) return im.row_by_row(node);
  if (places.values.size() != 1 || places.shape.size() > 1) refuse_sequence(im, node);
  const ImportValue row = one_row(im, node, x, whole_number(places.values[0]));
  return {places.shape.empty() ? row : of_samples(row, true)};
}

Values sequence_slice(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const auto number = [&](int input, const char* name) {
    const OnnxConstant* given = im.constant(node, input);
    const std::vector<int64_t> list = given ? whole_numbers(*given) : integers_attribute(node, name);
    return list.size() == 1 ? list[0] : int64_t{1} << 40;
  };
  if (number(3, "axes") != 1) return im.row_by_row(node);
  const int64_t from = number(1, "starts"), to = number(2, "ends"), step = number(4, "steps");
  if (from == 0 && to >= int64_t{1} << 31) return {x};  // all rows
  const bool last = from == -1 && to >= int64_t{1} << 31;
  if ((!last && to != from + 1) || (step != 1 && node.input_size() > 4)) refuse_sequence(im, node);
  return {of_samples(one_row(im, node, x, from), true)};
}

}  // namespace

void add_sequence_operators(OperatorTable& table) {
  table.insert({{"Identity", pass},
                {"Dropout", pass},
                {"Gemm", no_sequence},
                {"BatchNormalization", no_sequence},
                {"Unsqueeze", sequence_unsqueeze},
                {"Expand", no_sequence},
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
