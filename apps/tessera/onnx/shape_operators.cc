// Operators that choose, join or rename columns, and those that change nothing about the values of a sample.
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "onnx/importer.h"

namespace tessera::cli {
namespace {

using Values = Importer::Values;

ImportValue same(const Importer& im, const onnx::NodeProto& node) {
  ImportValue out = im.value(node, 0);
  out.sole = out.sole && im.is_sole(node);
  return out;
}

Values identity(Importer& im, const onnx::NodeProto& node) { return {same(im, node)}; }

Values cast(Importer& im, const onnx::NodeProto& node) {
  const int64_t to = integer_attribute(node, "to", onnx::TensorProto::FLOAT);
  if (to != onnx::TensorProto::FLOAT && to != onnx::TensorProto::DOUBLE)
    im.refuse(node, "cannot become a layer, because layers compute with float32 only");
  return {same(im, node)};
}

// [batch, width] into itself, or a [batch, 1] into [batch] and back.
Values reshaped_value(Importer& im, const onnx::NodeProto& node) {
  ImportValue out = same(im, node);
  const OnnxConstant& shape = im.needed_constant(node, 1, "shape");
  if (shape.values.size() == 3 || shape.values.size() == 4) return {as_matrix(im, node, out, shape)};
  out.flat = shape.values.size() == 1;
  if (!im.is_shape(shape, out.width(), out.flat))
    im.refuse(node, "cannot become a layer, because its result is not [batch, ", out.width(), "], as its input is");
  return {out};
}

Values flatten(Importer& im, const onnx::NodeProto& node) {
  ImportValue out = same(im, node);
  im.need_last_axis(node, integer_attribute(node, "axis", 1), out);
  return {out};
}

std::vector<int64_t> axes_of(const Importer& im, const onnx::NodeProto& node, int input) {
  if (const OnnxConstant* axes = im.constant(node, input)) return whole_numbers(*axes);
  return integers_attribute(node, "axes");
}

Values squeeze(Importer& im, const onnx::NodeProto& node) {
  ImportValue out = same(im, node);
  const std::vector<int64_t> axes = axes_of(im, node, 1);
  if (axes.size() != 1 || out.width() != 1 || out.flat)
    im.refuse(node, "cannot become a layer, because its input is not [batch, 1], or it names no axis");
  im.need_last_axis(node, axes[0], out);
  out.flat = true;
  return {out};
}

Values unsqueeze(Importer& im, const onnx::NodeProto& node) {
  ImportValue out = same(im, node);
  const std::vector<int64_t> axes = axes_of(im, node, 1);
  const auto width = static_cast<double>(out.width());
  if (!out.flat && axes == std::vector<int64_t>{1}) return {as_matrix(im, node, out, {{3}, {0, 1, width}, true})};
  if (!out.flat && (axes == std::vector<int64_t>{2} || axes == std::vector<int64_t>{-1}))
    return {as_matrix(im, node, out, {{3}, {0, width, 1}, true})};
  if (!out.flat || axes.size() != 1 || (axes[0] != 1 && axes[0] != -1))
    im.refuse(node, "cannot become a layer, because its result is not [batch, ", out.width(), ']');
  out.flat = false;
  return {out};
}

Values expand(Importer& im, const onnx::NodeProto& node) {
  const ImportValue out = same(im, node);
  const OnnxConstant& shape = im.needed_constant(node, 1, "shape");
  // The layer also divides, so this node can be skipped.
  const bool fills = is_length(im, out) && shape.values.size() == 2;
  if (!fills && !im.is_shape(shape, out.width(), out.flat))
    im.refuse(node, "cannot become a layer, because it copies values");
  return {out};
}

Values concat(Importer& im, const onnx::NodeProto& node) {
  ImportValue out;
  for (int k = 0; k < node.input_size(); ++k) {
    const ImportValue& x = im.value(node, k);
    im.need_last_axis(node, integer_attribute(node, "axis", 1), x);
    const auto before = static_cast<size_t>(out.width()), width = static_cast<size_t>(x.width());
    if (!x.scale.empty() || !out.scale.empty()) {
      out.scale.resize(before, 1);
      for (size_t c = 0; c < width; ++c) out.scale.push_back(x.scale_at(c));
    }
    if (!x.shift.empty() || !out.shift.empty()) {
      out.shift.resize(before, 0);
      for (size_t c = 0; c < width; ++c) out.shift.push_back(x.shift_at(c));
    }
    if (!x.is_plain()) out.constants_of = x.constants_of;
    out.parts.insert(out.parts.end(), x.parts.begin(), x.parts.end());
  }
  return {out};
}

Values split(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  im.need_last_axis(node, integer_attribute(node, "axis", 0), x);
  std::vector<int64_t> sizes = integers_attribute(node, "split");
  if (const OnnxConstant* given = im.constant(node, 1)) sizes = whole_numbers(*given);
  const auto outputs = static_cast<int64_t>(node.output_size());
  if (sizes.empty()) {
    const int64_t each = (x.width() + outputs - 1) / outputs;  // the last one may be smaller
    for (int64_t k = 0; k < outputs; ++k) sizes.push_back(std::min(each, x.width() - k * each));
  }
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size > 0 ? std::min(size, x.width() + 1) : x.width() + 1;
  if (sum != x.width())
    im.refuse(node, "cannot become a layer, because its parts are not the ", x.width(), " values of its input");
  if (x.parts.size() == 1 && x.is_plain() && sizes.size() > 1) {  // one layer makes all parts
    const ImportValue first = im.layer(node, "split_columns", x, sizes[0], {{"widths", sizes}});
    Values out(sizes.size());
    for (size_t k = 0; k < sizes.size(); ++k)
      out[k].parts = {{k == 0 ? first.parts[0].name : str_cat(first.parts[0].name, ':', k), sizes[k]}};
    return out;
  }
  Values out;
  int64_t first = 0;
  for (const int64_t size : sizes) {
    out.push_back(im.layers.columns(x, first, size));
    first += size;
  }
  return out;
}

Values slice(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  const auto list = [&](int input, const char* name) {
    if (input < node.input_size()) return whole_numbers(im.needed_constant(node, input, name));
    return integers_attribute(node, name);
  };
  std::vector<int64_t> starts = list(1, "starts"), ends = list(2, "ends"), axes = list(3, "axes"),
                       steps = list(4, "steps");
  if (starts.size() != 1 || ends.size() != 1 || axes.size() != 1 ||
      (!steps.empty() && steps != std::vector<int64_t>{1}))
    im.refuse(node, "cannot become a layer, because it is not a range of a sample's values with step 1");
  if (axes[0] == 0 && starts[0] == 0 && ends[0] >= int64_t{1} << 31) return {same(im, node)};  // all samples
  im.need_last_axis(node, axes[0], x);
  const auto place = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + x.width() : v, 0, x.width()); };
  const int64_t first = place(starts[0]), width = place(ends[0]) - first;
  if (width <= 0) im.refuse(node, "leaves none of the ", x.width(), " values of a sample");
  return {im.layers.columns(x, first, width)};
}

// One column, or a range of them.
Values gather(Importer& im, const onnx::NodeProto& node) {
  const ImportValue& x = im.value(node, 0);
  const OnnxConstant& columns = im.needed_constant(node, 1, "list of columns");
  im.need_last_axis(node, integer_attribute(node, "axis", 0), x);
  const auto place = [&](double v) { return whole_number(v) + (v < 0 ? x.width() : 0); };
  if (columns.values.empty()) im.refuse(node, "asks for no column");
  int64_t width = 0;
  for (const double v : columns.values) {
    if (place(v) < 0 || place(v) >= x.width()) im.refuse(node, "asks for column ", v, " of ", x.width());
    if (place(v) != place(columns.values[0]) + width++)
      im.refuse(node, "cannot become a layer, because its columns do not follow each other");
  }
  ImportValue out = im.layers.columns(x, place(columns.values[0]), width);
  out.flat = columns.shape.empty();
  return {out};
}

}  // namespace

void add_shape_operators(OperatorTable& table) {
  table.insert({{"Identity", identity},
                {"Cast", cast},
                {"Reshape", reshaped_value},
                {"Flatten", flatten},
                {"Squeeze", squeeze},
                {"Unsqueeze", unsqueeze},
                {"Expand", expand},
                {"Concat", concat},
                {"Split", split},
                {"Slice", slice},
                {"Gather", gather}});
}

}  // namespace tessera::cli
