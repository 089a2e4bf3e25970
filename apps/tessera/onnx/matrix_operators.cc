// Operators over a matrix for each sample, [batch, rows, width], as far as they end in layers: stacked vectors, their
// sums, their dot products with each other, and experts that gates weigh.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <optional>

#include "onnx/importer.h"

namespace tessera::cli {
namespace {

using Values = Importer::Values;

[[noreturn]] void refuse_matrix(const Importer& im, const onnx::NodeProto& node) {
  im.refuse(node, "cannot become a layer with these shapes of a matrix for each sample");
}

ImportValue in_form(ImportValue x, ValueForm form) {
  x.form = form;
  x.sole = false;
  if (form == ValueForm::kRow) x.rows = 0;
  return x;
}

std::vector<int64_t> reduced_axes(const Importer& im, const onnx::NodeProto& node) {
  if (const OnnxConstant* given = im.constant(node, 1)) return whole_numbers(*given);
  return integers_attribute(node, "axes");
}

Values matrix_pass(Importer& im, const onnx::NodeProto& node) { return {im.matrix(node, 0)}; }

Values matrix_transpose(Importer& im, const onnx::NodeProto& node) {
  ImportValue x = im.matrix(node, 0);
  const std::vector<int64_t> order = integers_attribute(node, "perm");
  const bool swaps = order == std::vector<int64_t>{0, 2, 1} && !x.batch_last;
  if (swaps && x.form == ValueForm::kMatrix) return {in_form(x, ValueForm::kTransposed)};
  if (swaps && x.form == ValueForm::kTransposed) return {in_form(x, ValueForm::kMatrix)};
  if (swaps && x.form == ValueForm::kProducts) return {x};
  const bool ends = order == std::vector<int64_t>{1, 2, 0} && x.form == ValueForm::kProducts && !x.batch_last;
  const bool begins = order == std::vector<int64_t>{1, 0} && x.form == ValueForm::kRow && x.batch_last;
  if (!ends && !begins) refuse_matrix(im, node);
  x.batch_last = ends;
  return {x};
}

// A matrix of a layer over rows of `dim` values.
ImportValue fields_layer(Importer& im, const onnx::NodeProto& node, const char* type, std::vector<ValuePart> inputs,
                         int64_t rows, int64_t dim,
                         const nlohmann::ordered_json& more = nlohmann::ordered_json::object()) {
  ImportValue of{.parts = std::move(inputs)};
  nlohmann::ordered_json options = {{"dim", dim}};
  options.update(more);
  ImportValue out = im.layer(node, type, of, rows * dim, options);
  out.form = ValueForm::kMatrix;
  out.rows = rows;
  return out;
}

// New rows, each a sum of all rows by constant weights.
Values compressed(Importer& im, const onnx::NodeProto& node, const OnnxConstant& by) {
  const ImportValue& x = im.matrix(node, 1);
  if (x.form != ValueForm::kMatrix || by.shape.size() != 2 || by.shape[1] != x.rows || by.shape[0] < 1)
    refuse_matrix(im, node);
  const ImportValue plain = im.layers.plain(x);
  ImportValue out =
      fields_layer(im, node, "field_linear", plain.parts, by.shape[0], x.width() / x.rows, {{"fields", by.shape[0]}});
  const std::vector<float> weight(by.values.begin(), by.values.end());
  im.layers.layers().back().parameters["weight"] = Tensor::from(std::span<const float>(weight), by.shape);
  return {out};
}

// Each row, of [batch, rows, 1, width], times a constant matrix of its own.
ImportValue turned_rows(Importer& im, const onnx::NodeProto& node, const OnnxConstant& by) {
  const ImportValue& x = im.matrix(node, 0);
  if (x.form != ValueForm::kColumnOfRows || by.shape.size() != 3 || by.shape[0] != x.rows || x.rows > kMostVectors ||
      by.shape[1] != x.width() / x.rows || by.shape[2] < 1)
    refuse_matrix(im, node);
  const auto in = static_cast<size_t>(by.shape[1]), out = static_cast<size_t>(by.shape[2]);
  const ImportValue all = in_form(x, ValueForm::kRow);
  ImportValue made;
  for (int64_t r = 0; r < x.rows; ++r) {
    const double* const from = by.values.data() + static_cast<size_t>(r) * in * out;
    std::vector<double> weight(in * out);
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) weight[o * in + i] = from[i * out + o];
    }
    const ImportValue one = im.layers.columns(all, r * by.shape[1], by.shape[1]);
    made.parts.push_back(
        im.layers.linear("turned", one, std::move(weight), {}, Importer::described(node)).parts.front());
  }
  made.form = ValueForm::kColumnOfRows;
  made.rows = x.rows;
  return made;
}

// All dot products of the rows, or those of two matrices.
Values matrix_products(Importer& im, const onnx::NodeProto& node) {
  if (const OnnxConstant* by = im.constant(node, 0)) return compressed(im, node, *by);
  if (const OnnxConstant* by = im.constant(node, 1)) return {turned_rows(im, node, *by)};
  const ImportValue &a = im.matrix(node, 0), &b = im.matrix(node, 1);
  if (a.form == ValueForm::kMatrix && b.form == ValueForm::kMatrix && a.width() == a.rows * b.rows) {
    const int64_t columns = b.width() / b.rows;
    ImportValue both{.parts = {{im.layers.single(a), a.width()}, {im.layers.single(b), b.width()}}};
    ImportValue out = im.layer(node, "matmul", both, a.rows * columns, {{"dim", b.rows}});
    out.form = ValueForm::kMatrix;
    out.rows = a.rows;
    return {out};
  }
  const bool two = a.form == ValueForm::kMatrix && b.form == ValueForm::kTransposed && a.parts != b.parts;
  if (two && a.width() * b.rows == b.width() * a.rows) {
    ImportValue both{.parts = {{im.layers.single(a), a.width()}, {im.layers.single(b), b.width()}}};
    ImportValue out =
        im.layer(node, "matmul", both, a.rows * b.rows, {{"dim", a.width() / a.rows}, {"transposed", true}});
    out.form = ValueForm::kMatrix;
    out.rows = a.rows;
    return {out};
  }
  const bool same = a.form == ValueForm::kMatrix && b.form == ValueForm::kTransposed && a.parts == b.parts &&
                    a.is_plain() && b.is_plain() && a.rows == b.rows;
  if (!same || a.rows < 2 || a.rows > kMostVectors)
    im.refuse(node, "has no counterpart among the layers of docs/layers.md, except of vectors with each other");
  return {in_form(a, ValueForm::kProducts)};
}

// Chooses dot products as columns of a dot_interaction. `pairs` has row · rows + column of each.
ImportValue chosen(Importer& im, const onnx::NodeProto& node, const ImportValue& x, const std::vector<int64_t>& pairs) {
  const int64_t rows = x.rows, dim = x.width() / rows, first_pair = dim;
  const ImportValue vectors = in_form(x, ValueForm::kRow);
  ImportValue inputs = im.layers.columns(vectors, dim, x.width() - dim);
  const std::string first = im.layers.single(im.layers.columns(vectors, 0, dim));
  inputs.parts.insert(inputs.parts.begin(), {first, dim});
  const int64_t width = dim + rows * (rows - 1) / 2;
  ImportValue all = im.layer(node, "dot_interaction", inputs, width);
  ImportValue out;
  int64_t begin = 0, count = 0;  // of columns that follow each other
  const auto take = [&] {
    if (count == 0) return;
    const ImportValue run = im.layers.columns(all, begin, count);
    out.parts.insert(out.parts.end(), run.parts.begin(), run.parts.end());
  };
  for (const int64_t pair : pairs) {
    const int64_t i = std::min(pair / rows, pair % rows), j = std::max(pair / rows, pair % rows);
    if (pair < 0 || pair >= rows * rows || i == j)
      im.refuse(node, "cannot become a layer, because it asks for another value than dot products of two vectors");
    const int64_t column = first_pair + i * (2 * rows - i - 1) / 2 + j - i - 1;
    if (count > 0 && column == begin + count) {
      ++count;
      continue;
    }
    take();
    begin = column, count = 1;
  }
  take();
  out.batch_last = x.batch_last;
  return out;
}

ImportValue chosen_rows(Importer& im, const onnx::NodeProto& node, const ImportValue& x, const OnnxConstant& places) {
  const int64_t width = x.width() / x.rows;
  const ImportValue all = im.layers.plain(in_form(x, ValueForm::kRow));
  ImportValue out;
  for (const double v : places.values) {
    const int64_t row = whole_number(v) + (v < 0 ? x.rows : 0);
    if (row < 0 || row >= x.rows || std::ssize(out.parts) > kMostVectors * kMostVectors) refuse_matrix(im, node);
    const ImportValue one = im.layers.columns(all, row * width, width);
    out.parts.insert(out.parts.end(), one.parts.begin(), one.parts.end());
  }
  if (places.values.empty() || places.shape.size() > 1) refuse_matrix(im, node);
  if (places.shape.empty()) return out;
  out.form = ValueForm::kMatrix;
  out.rows = std::ssize(places.values);
  return out;
}

Values matrix_gather(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const OnnxConstant& pairs = im.needed_constant(node, 1, "list of places");
  const int64_t axis = integer_attribute(node, "axis", 0);
  if (x.form == ValueForm::kMatrix && (axis == 1 || axis == -2)) return {chosen_rows(im, node, x, pairs)};
  if (x.form != ValueForm::kProductList || axis != (x.batch_last ? 0 : 1) || pairs.values.empty())
    refuse_matrix(im, node);
  return {chosen(im, node, x, whole_numbers(pairs))};
}

Values matrix_gather_nd(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const OnnxConstant& places = im.needed_constant(node, 1, "list of places");
  const bool two = places.shape.size() == 2 && places.shape[1] == 2 && !places.values.empty();
  if (x.form != ValueForm::kProducts || !x.batch_last || !two || integer_attribute(node, "batch_dims", 0) != 0)
    refuse_matrix(im, node);
  std::vector<int64_t> pairs;
  for (size_t k = 0; k + 1 < places.values.size(); k += 2) {
    const auto at = [&](size_t i) { return whole_number(places.values[i]) + (places.values[i] < 0 ? x.rows : 0); };
    if (at(k) < 0 || at(k) >= x.rows || at(k + 1) < 0 || at(k + 1) >= x.rows) refuse_matrix(im, node);
    pairs.push_back(at(k) * x.rows + at(k + 1));
  }
  return {chosen(im, node, x, pairs)};
}

Values matrix_flatten(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const int64_t axis = integer_attribute(node, "axis", 1);
  if (x.form == ValueForm::kMatrix && axis == 1) return {in_form(x, ValueForm::kRow)};
  if (x.form != ValueForm::kProducts || axis != (x.batch_last ? 2 : 1)) refuse_matrix(im, node);
  return {in_form(x, ValueForm::kProductList)};
}

bool is_of_vectors(ValueForm form) {
  return form == ValueForm::kMatrix || form == ValueForm::kColumnOfRows || form == ValueForm::kRowOfRows ||
         form == ValueForm::kPairs;
}

Values matrix_reshape(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const OnnxConstant& shape = im.needed_constant(node, 1, "shape");
  if (x.form == ValueForm::kRow) {  // stays [values, batch]
    const std::vector<double>& s = shape.values;
    const bool same = s.size() == 2 && (s[0] == -1 || s[0] == static_cast<double>(x.width())) &&
                      (s[1] == kBatchSize || (s[1] == -1 && s[0] != -1));
    return same ? Values{x} : (refuse_matrix(im, node), Values{});
  }
  if (x.batch_last) refuse_matrix(im, node);
  if (is_of_vectors(x.form)) {
    if (im.is_shape(shape, x.width(), false)) return {in_form(x, ValueForm::kRow)};
    return {as_matrix(im, node, in_form(x, ValueForm::kRow), shape)};
  }
  if (x.form == ValueForm::kProducts && im.is_shape(shape, x.rows * x.rows, false))
    return {in_form(x, ValueForm::kProductList)};
  refuse_matrix(im, node);
}

// [batch, rows, width] as a column of rows, or as a row of them.
Values matrix_unsqueeze(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const std::vector<int64_t> axes = reduced_axes(im, node);
  if (x.form != ValueForm::kMatrix || axes.size() != 1 || (axes[0] != 1 && axes[0] != 2)) refuse_matrix(im, node);
  return {in_form(x, axes[0] == 2 ? ValueForm::kColumnOfRows : ValueForm::kRowOfRows)};
}

Values matrix_squeeze(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  const std::vector<int64_t> axes = reduced_axes(im, node);
  const bool row = axes == std::vector<int64_t>{1} && x.rows == 1;
  const bool column = (axes == std::vector<int64_t>{2} || axes == std::vector<int64_t>{-1}) && x.rows == x.width();
  if (x.form != ValueForm::kMatrix || (!row && !column)) refuse_matrix(im, node);
  return {in_form(x, ValueForm::kRow)};
}

Values matrix_expand(Importer& im, const onnx::NodeProto& node) {
  return {im.expanded(node, im.needed_constant(node, 1, "shape"))};
}

Values matrix_stack(Importer& im, const onnx::NodeProto& node) {
  ImportValue out;
  for (int k = 0; k < node.input_size(); ++k) {
    ImportValue x = im.layers.plain(im.matrix(node, k));
    const bool fits = out.rows == 0 || x.width() * out.rows == out.width() * x.rows;
    if (x.form != ValueForm::kMatrix || !fits || integer_attribute(node, "axis", 1) != 1) refuse_matrix(im, node);
    out.parts.insert(out.parts.end(), x.parts.begin(), x.parts.end());
    out.rows += x.rows;
  }
  out.form = ValueForm::kMatrix;
  return {out};
}

// Products of two values, element by element, as a matrix of the first one's shape.
ImportValue matrix_product(Importer& im, const onnx::NodeProto& node, const char* type, const ImportValue& a,
                           const ImportValue& b, int64_t width) {
  ImportValue both{.parts = {{im.layers.single(a), a.width()}, {im.layers.single(b), b.width()}}};
  ImportValue out = im.layer(node, type, both, width);
  out.form = ValueForm::kMatrix;
  out.rows = a.rows;
  return out;
}

Values matrix_multiply(Importer& im, const onnx::NodeProto& node) {
  const ImportValue &a = im.matrix(node, 0), &b = im.matrix(node, 1);
  for (const auto& [column, row] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (column->form != ValueForm::kColumnOfRows || row->form != ValueForm::kRowOfRows) continue;
    const int64_t dim = column->width() / column->rows;
    if (dim != row->width() / row->rows) break;
    ImportValue out =
        fields_layer(im, node, "field_products",
                     {{im.layers.single(*column), column->width()}, {im.layers.single(*row), row->width()}},
                     column->rows * row->rows, dim);
    out.form = ValueForm::kPairs;
    return {out};
  }
  if (a.form != ValueForm::kMatrix || b.form != ValueForm::kMatrix || a.rows != b.rows) refuse_matrix(im, node);
  if (a.width() == b.width()) return {matrix_product(im, node, "product", a, b, a.width())};
  for (const auto& [gates, all] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (gates->width() != gates->rows) continue;
    const int64_t dim = all->width() / all->rows;
    return {fields_layer(im, node, "field_scale",
                         {{im.layers.single(*all), all->width()}, {im.layers.single(*gates), gates->width()}},
                         all->rows, dim)};
  }
  refuse_matrix(im, node);
}

Values matrix_add(Importer& im, const onnx::NodeProto& node) {
  const ImportValue &a = im.matrix(node, 0), &b = im.matrix(node, 1);
  const bool same = a.form == ValueForm::kMatrix && b.form == a.form && a.rows == b.rows && a.width() == b.width();
  return same ? Values{matrix_product(im, node, "sum", a, b, a.width())} : (refuse_matrix(im, node), Values{});
}

Values matrix_power(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.matrix(node, 0);
  if (x.form != ValueForm::kMatrix || im.number(node, 1, "exponent") != 2) refuse_matrix(im, node);
  return {matrix_product(im, node, "product", x, x, x.width())};
}

// The sum of the rows; of weighted ones as a mixture.
ImportValue sum_of_rows(Importer& im, const onnx::NodeProto& node) {
  const ImportValue x = im.matrix(node, 0);
  const std::vector<int64_t> axes = reduced_axes(im, node);
  const bool over_rows = axes == std::vector<int64_t>{1} || axes == std::vector<int64_t>{-2};
  if (x.form != ValueForm::kMatrix || !over_rows) refuse_matrix(im, node);
  const int64_t width = x.width() / x.rows;
  const ImportedLayer* made = x.parts.size() == 1 ? im.layers.maker(x.parts[0].name) : nullptr;
  ImportValue rows, out;
  if (made != nullptr && made->type == "field_scale" && x.is_plain()) {
    rows.parts = {made->inputs[1], made->inputs[0]};
    out = im.layer(node, "mixture", rows, width, {{"softmax", false}});
  } else if (x.rows == 1) {
    out = in_form(x, ValueForm::kRow);
  } else {
    const ImportValue all = in_form(x, ValueForm::kRow);
    for (int64_t r = 0; r < x.rows; ++r)
      rows.parts.push_back({im.layers.single(im.layers.columns(all, r * width, width)), width});
    out = im.layer(node, "sum", rows, width);
  }
  if (integer_attribute(node, "keepdims", 1) != 0) {
    out.form = ValueForm::kMatrix;
    out.rows = 1;
  }
  return out;
}

// The sum of each row's values, or their mean; nullopt: the node reduces the rows.
std::optional<ImportValue> row_sums(Importer& im, const onnx::NodeProto& node, bool mean) {
  const ImportValue& x = im.matrix(node, 0);
  const std::vector<int64_t> axes = reduced_axes(im, node);
  const bool values = axes == std::vector<int64_t>{2} || axes == std::vector<int64_t>{-1};
  if (x.form != ValueForm::kMatrix || !values) return std::nullopt;
  nlohmann::ordered_json options = {{"dim", x.width() / x.rows}};
  if (mean) options["mean"] = true;
  ImportValue of{.parts = im.layers.plain(x).parts};
  ImportValue out = im.layer(node, "field_sum", of, x.rows, options);
  if (integer_attribute(node, "keepdims", 1) == 0) return out;
  out.form = ValueForm::kMatrix;
  out.rows = x.rows;
  return out;
}

Values matrix_reduce_sum(Importer& im, const onnx::NodeProto& node) {
  if (auto out = row_sums(im, node, false)) return {*out};
  return {sum_of_rows(im, node)};
}

Values matrix_reduce_mean(Importer& im, const onnx::NodeProto& node) {
  if (auto out = row_sums(im, node, true)) return {*out};
  const double rows = static_cast<double>(std::max<int64_t>(1, im.matrix(node, 0).rows));
  const ImportValue sum = sum_of_rows(im, node);
  const auto width = static_cast<size_t>(sum.width());
  return {im.layers.scaled(sum, std::vector<double>(width, 1 / rows), std::vector<double>(width, 0),
                           Importer::described(node))};
}

}  // namespace

ImportValue as_matrix(const Importer& im, const onnx::NodeProto& node, ImportValue x, const OnnxConstant& shape) {
  std::vector<double> sizes = shape.values;
  ValueForm form = ValueForm::kMatrix;
  if (sizes.size() == 4 && (sizes[1] == 1 || sizes[2] == 1)) {
    form = sizes[2] == 1 ? ValueForm::kColumnOfRows : ValueForm::kRowOfRows;
    sizes.erase(sizes.begin() + (sizes[2] == 1 ? 2 : 1));
  }
  int64_t known = 1;
  if (sizes.size() != 3 || !im.is_batch(sizes[0], sizes[1] != -1 && sizes[2] != -1) || x.flat) refuse_matrix(im, node);
  for (const size_t d : {1, 2}) known *= std::max<int64_t>(1, whole_number(sizes[d]));
  const int64_t rows = sizes[1] == -1 ? x.width() / known : whole_number(sizes[1]);
  const int64_t width = sizes[2] == -1 ? x.width() / known : whole_number(sizes[2]);
  if (rows < 1 || width < 1 || rows * width != x.width()) refuse_matrix(im, node);
  x.form = form;
  x.rows = rows;
  x.sole = false;
  return x;
}

void add_matrix_operators(OperatorTable& table) {
  table.insert({{"Identity", matrix_pass},
                {"Dropout", matrix_pass},
                {"Transpose", matrix_transpose},
                {"MatMul", matrix_products},
                {"Gather", matrix_gather},
                {"GatherND", matrix_gather_nd},
                {"Flatten", matrix_flatten},
                {"Reshape", matrix_reshape},
                {"Squeeze", matrix_squeeze},
                {"Unsqueeze", matrix_unsqueeze},
                {"Expand", matrix_expand},
                {"Concat", matrix_stack},
                {"Mul", matrix_multiply},
                {"Add", matrix_add},
                {"Pow", matrix_power},
                {"ReduceSum", matrix_reduce_sum},
                {"ReduceMean", matrix_reduce_mean}});
}

}  // namespace tessera::cli
