#include "onnx/importer.h"

#include <onnx/onnx_pb.h>

#include <algorithm>

namespace tessera::cli {

Importer::Importer(const onnx::GraphProto& graph, const std::string& file, std::map<std::string, ImportValue> inputs,
                   std::set<std::string> taken, int64_t batch)
    : layers(std::move(taken), file), graph_(graph), values_(std::move(inputs)), batch_(batch) {
  for (const onnx::TensorProto& tensor : graph.initializer()) constants_[tensor.name()] = constant_of(tensor, file);
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& input : node.input()) ++uses_[input];
  }
  for (const onnx::ValueInfoProto& out : graph.output()) ++uses_[out.name()];
}

std::string Importer::described(const onnx::NodeProto& node) {
  std::string inputs;
  for (const std::string& input : node.input()) {
    if (!input.empty()) inputs += str_cat(inputs.empty() ? "" : ", ", '"', input, '"');
  }
  const std::string domain = node.domain().empty() ? "" : node.domain() + ".";
  const std::string output = node.output_size() > 0 ? node.output(0) : "";
  const std::string which =
      node.name().empty() ? str_cat("the node that makes \"", output, '"') : str_cat("node \"", node.name(), '"');
  return str_cat("the operator ", domain, node.op_type(), " of ", which,
                 inputs.empty() ? "" : " (inputs " + inputs + ")");
}

void Importer::fold_shape(const onnx::NodeProto& node, const ImportValue& x) {
  std::vector<double> sizes = {kBatchSize};
  const auto rows = static_cast<double>(x.rows), columns = x.rows > 0 ? static_cast<double>(x.width()) / rows : 0;
  if (x.form == ValueForm::kMatrix) sizes.insert(sizes.end(), {rows, columns});
  if (x.form == ValueForm::kTransposed) sizes.insert(sizes.end(), {columns, rows});
  if (x.form == ValueForm::kProducts) sizes.insert(sizes.end(), {rows, rows});
  if (x.form == ValueForm::kProductList) sizes.push_back(rows * rows);
  if (x.form == ValueForm::kRow && !x.flat) sizes.push_back(static_cast<double>(x.width()));
  if (x.batch_last) std::rotate(sizes.begin(), sizes.begin() + 1, sizes.end());
  const auto rank = static_cast<int64_t>(sizes.size());
  const auto place = [&](const char* name, int64_t otherwise) {
    const int64_t given = integer_attribute(node, name, otherwise);
    return std::clamp<int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const int64_t from = place("start", 0), to = std::max(from, place("end", rank));
  OnnxConstant& shape = constants_[node.output(0)];
  shape.values.assign(sizes.begin() + from, sizes.begin() + to);
  shape.shape = {to - from};
  shape.integers = true;
}

bool Importer::takes_matrix(const onnx::NodeProto& node) const {
  return std::any_of(node.input().begin(), node.input().end(), [&](const std::string& name) {
    const auto found = values_.find(name);
    return found != values_.end() && (found->second.form != ValueForm::kRow || found->second.batch_last);
  });
}

bool Importer::fold_node(const onnx::NodeProto& node) {
  if (node.output_size() == 0) return false;
  if (node.op_type() == "Shape" && node.input_size() == 1 && values_.contains(node.input(0))) {
    fold_shape(node, values_.at(node.input(0)));
    return true;
  }
  std::vector<const OnnxConstant*> inputs;
  for (const std::string& name : node.input()) {
    if (name.empty()) continue;
    const auto found = constants_.find(name);
    if (found == constants_.end()) return false;
    inputs.push_back(&found->second);
  }
  std::optional<OnnxConstant> out = fold(node, inputs, layers.file());
  if (!out) return false;
  constants_[node.output(0)] = std::move(*out);
  return true;
}

void Importer::run() {
  OperatorTable table, matrices;
  add_matrix_operators(matrices);
  add_layer_operators(table);
  add_arithmetic_operators(table);
  add_shape_operators(table);
  for (const onnx::NodeProto& node : graph_.node()) {
    if (fold_node(node)) continue;
    const OperatorTable& known = takes_matrix(node) ? matrices : table;
    const auto found = known.find(node.op_type());
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    if (found == known.end() || !standard || node.output_size() == 0)
      refuse(node, "has no counterpart among the layers of docs/layers.md");
    const Values made = found->second(*this, node);
    for (int k = 0; k < node.output_size() && k < static_cast<int>(made.size()); ++k) {
      const ImportValue& one = made[static_cast<size_t>(k)];
      if (one.width() > kMostValues) refuse(node, "makes more than ", kMostValues, " values of a sample");
      values_[node.output(k)] = one;
    }
  }
}

ImportValue Importer::output(const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end())
    fail(Code::kUnimplemented, layers.file(), ": the output \"", name, "\" does not depend on the inputs");
  if (found->second.form != ValueForm::kRow || found->second.batch_last)
    fail(Code::kUnimplemented, layers.file(), ": the output \"", name, "\" must be [batch, width] and is a matrix");
  return found->second;
}

const OnnxConstant* Importer::constant(const onnx::NodeProto& node, int input) const {
  if (input >= node.input_size()) return nullptr;
  const auto found = constants_.find(node.input(input));
  return found == constants_.end() ? nullptr : &found->second;
}

const OnnxConstant& Importer::needed_constant(const onnx::NodeProto& node, int input, const char* what) const {
  if (const OnnxConstant* out = constant(node, input)) return *out;
  refuse(node, "cannot become a layer, because its ", what, " is not a constant");
}

const ImportValue& Importer::value(const onnx::NodeProto& node, int input) const {
  const ImportValue& out = matrix(node, input);
  if (out.form == ValueForm::kRow && !out.batch_last) return out;
  refuse(node, "cannot become a layer, because its input ", input, " is a matrix of each sample");
}

const ImportValue& Importer::matrix(const onnx::NodeProto& node, int input) const {
  const auto found = input < node.input_size() ? values_.find(node.input(input)) : values_.end();
  if (found != values_.end()) return found->second;
  refuse(node, "cannot become a layer, because its input ", input, " is not a value of the samples");
}

double Importer::number(const onnx::NodeProto& node, int input, const char* what) const {
  const OnnxConstant& out = needed_constant(node, input, what);
  if (out.values.size() != 1) refuse(node, "cannot become a layer, because its ", what, " is not one number");
  return out.values[0];
}

bool Importer::is_sole(const onnx::NodeProto& node) const {
  const auto found = uses_.find(node.output(0));
  return found != uses_.end() && found->second == 1;
}

void Importer::need_last_axis(const onnx::NodeProto& node, int64_t axis, const ImportValue& x) const {
  if ((axis != 1 && axis != -1) || x.flat)
    refuse(node, "cannot become a layer, because its axis ", axis, " is not that of a sample's values");
}

bool Importer::is_batch(double size, bool open) const {
  return (open && size == -1) || size == 0 || size == kBatchSize || (batch_ > 0 && size == static_cast<double>(batch_));
}

bool Importer::is_shape(const OnnxConstant& shape, int64_t width, bool flat) const {
  const std::vector<double>& sizes = shape.values;
  if (sizes.size() != (flat ? 1 : 2)) return false;
  if (flat) return width == 1 && is_batch(sizes[0], true);
  const bool last = sizes[1] == static_cast<double>(width) || (sizes[1] == -1 && sizes[0] != -1) || sizes[1] == 0;
  return is_batch(sizes[0], true) && last;
}

ImportValue Importer::layer(const onnx::NodeProto& node, const char* type, const ImportValue& x, int64_t width,
                            nlohmann::ordered_json options) {
  ImportedLayer made;
  made.type = type;
  made.inputs = layers.plain(x).parts;
  made.options = std::move(options);
  made.node = described(node);
  const std::string kind = made.options.contains("kind") ? made.options["kind"].get<std::string>() : type;
  ImportValue out = layers.add(kind, std::move(made), width);
  out.flat = x.flat;
  return out;
}

}  // namespace tessera::cli
