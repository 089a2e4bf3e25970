#include "onnx/importer.h"

#include <onnx/onnx_pb.h>

#include <algorithm>

#include "onnx/import_axes.h"

namespace tessera::cli {

Importer::Importer(const onnx::GraphProto& graph, const std::string& file, std::map<std::string, ImportValue> inputs,
                   std::set<std::string> taken, int64_t batch)
    : layers(std::move(taken), file), graph_(graph), values_(std::move(inputs)), batch_(batch) {
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    constants_[tensor.name()] = constant_of(tensor, file);
    origins_[tensor.name()] = {tensor.name()};
  }
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
  const bool four =
      x.form == ValueForm::kColumnOfRows || x.form == ValueForm::kRowOfRows || x.form == ValueForm::kPairs;
  if ((x.sequence && x.form != ValueForm::kRow) || four) refuse(node, "asks for a shape that is not known here");
  const auto rows = static_cast<double>(x.rows), columns = x.rows > 0 ? static_cast<double>(x.width()) / rows : 0;
  if (x.form == ValueForm::kMatrix) sizes.insert(sizes.end(), {rows, columns});
  if (x.form == ValueForm::kTransposed) sizes.insert(sizes.end(), {columns, rows});
  if (x.form == ValueForm::kProducts) sizes.insert(sizes.end(), {rows, rows});
  if (x.form == ValueForm::kProductList) sizes.push_back(rows * rows);
  if (x.form == ValueForm::kRow && !x.flat && !x.sequence) sizes.push_back(static_cast<double>(x.width()));
  if (x.sequence && is_in_order(x)) shaped_ = x;
  if (x.sequence) sizes.clear();
  for (const Axes& dimension : x.dims) sizes.push_back(size_of(x, dimension));
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

bool Importer::takes_sequence(const onnx::NodeProto& node) const {
  return std::any_of(node.input().begin(), node.input().end(), [&](const std::string& name) {
    const auto found = values_.find(name);
    return found != values_.end() && found->second.sequence;
  });
}

std::map<std::string, ImportValue> Importer::make_sequences(const onnx::NodeProto& node) {
  std::map<std::string, ImportValue> before;
  const std::string& op = node.op_type();
  const OnnxConstant* const by = constant(node, 1);
  const bool linear = op == "MatMul" && by != nullptr && by->shape.size() == 2;
  const bool constants = (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") && node.input_size() == 2 &&
                         (by != nullptr || constant(node, 0) != nullptr);
  const bool only = linear || constants || (!of_matrices_.contains(op) && operators_.contains(op));
  if (!only && !takes_sequence(node)) return before;
  const ImportValue* sequence = nullptr;
  for (const std::string& name : node.input()) {
    if (values_.contains(name) && values_.at(name).sequence) sequence = &values_.at(name);
  }
  for (const std::string& name : node.input()) {
    const auto found = values_.find(name);
    if (found == values_.end() || found->second.form != ValueForm::kMatrix) continue;
    const bool beside = found->second.rows == 1 && op != "Add" && op != "MatMul";  // one row for all rows of a sample
    if (found->second.rows < 2 && !(beside && sequence != nullptr)) continue;
    before.emplace(name, found->second);
    found->second = beside ? on_each_row(node, found->second, *sequence) : as_sequence(node, found->second);
  }
  return before;
}

Importer::Values Importer::row_by_row(const onnx::NodeProto& node) {
  const auto found = operators_.find(node.op_type());
  if (found == operators_.end()) refuse(node, "has no counterpart among the layers of docs/layers.md");
  const ImportValue* first = nullptr;
  const auto in_front = [](const ImportValue& x) { return std::vector<Axes>(x.dims.begin(), x.dims.end() - !x.flat); };
  for (int k = 0; k < node.input_size(); ++k) {
    const auto value = values_.find(node.input(k));
    if (value == values_.end()) continue;
    const ImportValue& x = value->second;
    if (!x.sequence || !ends_in_columns(x) || (first != nullptr && in_front(x) != in_front(*first)))
      refuse(node, "cannot become a layer, because its input ", k, " does not have the rows of a sequence");
    if (first == nullptr) first = &x;
  }
  const ImportValue like = *first;
  Values out = found->second(*this, node);
  for (ImportValue& value : out) {
    value.sequence = true;
    value.rows = like.rows;
    value.dims = in_front(like);
    value.factors = {value.width()};
    if (!value.flat) value.dims.push_back({0});
    if (value.flat && value.rows > 0) value = as_columns(node, value);  // [batch, rows]
  }
  return out;
}

Importer::Values Importer::translate(const onnx::NodeProto& node) {
  const bool standard = (node.domain().empty() || node.domain() == "ai.onnx") && node.output_size() > 0;
  std::map<std::string, ImportValue> before;  // other nodes may take the matrices as they are
  if (standard && takes_matrix(node)) before = make_sequences(node);
  const bool sequence = takes_sequence(node);
  const OperatorTable& known = sequence ? of_sequences_ : takes_matrix(node) ? of_matrices_ : operators_;
  const auto found = known.find(node.op_type());
  if (!standard || (found == known.end() && !sequence))
    refuse(node, "has no counterpart among the layers of docs/layers.md");
  Values out = found != known.end() ? found->second(*this, node) : row_by_row(node);
  for (auto& [name, value] : before) values_[name] = std::move(value);
  return out;
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
  for (const std::string& name : node.input()) {
    if (const auto from = origins_.find(name); from != origins_.end())
      origins_[node.output(0)].insert(from->second.begin(), from->second.end());
  }
  return true;
}

void Importer::run() {
  add_sequence_operators(of_sequences_);
  add_matrix_operators(of_matrices_);
  add_layer_operators(operators_);
  add_arithmetic_operators(operators_);
  add_shape_operators(operators_);
  for (const onnx::NodeProto& node : graph_.node()) {
    if (fold_node(node)) continue;
    const Values made = translate(node);
    std::set<std::string> taken;
    for (const std::string& name : node.input()) {
      if (const auto from = origins_.find(name); from != origins_.end())
        taken.insert(from->second.begin(), from->second.end());
    }
    for (const std::string& name : taken) ++takers_[name];
    for (int k = 0; k < node.output_size() && k < static_cast<int>(made.size()); ++k) {
      const ImportValue& one = made[static_cast<size_t>(k)];
      if (one.width() > kMostValues) refuse(node, "makes more than ", kMostValues, " values of a sample");
      values_[node.output(k)] = one;
    }
  }
}

std::vector<std::string> Importer::shared_weights() const {
  std::vector<std::string> out;
  for (const auto& [name, takers] : takers_) {
    const OnnxConstant& weight = constants_.at(name);
    if (takers > 1 && !weight.integers && weight.values.size() > 1) out.push_back(name);
  }
  return out;
}

ImportValue Importer::output(const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end())
    fail(Code::kUnimplemented, layers.file(), ": the output \"", name, "\" does not depend on the inputs");
  if (found->second.form != ValueForm::kRow || found->second.batch_last || found->second.sequence)
    fail(Code::kUnimplemented, layers.file(), ": the output \"", name, "\" must be [batch, width] and is a ",
         found->second.sequence ? "sequence" : "matrix");
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
  if ((axis != (x.sequence ? std::ssize(x.dims) - 1 : 1) && axis != -1) || x.flat)
    refuse(node, "cannot become a layer, because its axis ", axis, " is not that of a sample's values");
}

bool Importer::is_batch(double size, bool open) const {
  return (open && size == -1) || size == 0 || size == kBatchSize || (batch_ > 0 && size == static_cast<double>(batch_));
}

ImportValue Importer::as_sequence(const onnx::NodeProto& node, const ImportValue& x) {
  ImportValue rows, flat = x;
  flat.form = ValueForm::kRow;
  const int64_t width = x.width() / x.rows;
  if (x.rows > kMostVectors) refuse(node, "takes ", x.rows, " vectors of a sample: at most ", kMostVectors);
  std::string key;
  for (int64_t r = 0; r < x.rows; ++r) {
    rows.parts.push_back({layers.single(layers.columns(flat, r * width, width)), width});
    key += rows.parts.back().name + ' ';
  }
  if (!sequences_.contains(key)) sequences_[key] = layer(node, "concat_sequences", rows, width).parts[0].name;
  ImportValue out{.parts = {{sequences_[key], width}}, .rows = x.rows};
  begin_axes(out);
  return out;
}

ImportValue Importer::on_each_row(const onnx::NodeProto& node, const ImportValue& row, const ImportValue& like) {
  if (!is_in_order(like) || row.form != ValueForm::kMatrix || row.rows != 1 || row.width() != like.width())
    refuse(node, "cannot become a layer, because it copies a row of ", row.width(), " values to other rows");
  ImportValue of{.parts = {{layers.single(like), like.width()}}};
  const ImportValue zeros = layer(node, "piecewise", of, like.width(), {{"at", {0.0, 1.0}}, {"values", {0.0, 0.0}}});
  of.parts = {zeros.parts[0], {layers.single(row), row.width()}};
  ImportValue out = layer(node, "add", of, row.width());
  out.rows = like.rows;
  begin_axes(out);
  return out;
}

ImportValue Importer::expanded(const onnx::NodeProto& node, const OnnxConstant& shape) {
  const ImportValue& row = matrix(node, 0);
  const std::vector<double>& sizes = shape.values;
  const bool rows = sizes.size() == 3 && sizes[1] == kLengthSize && shaped_.sequence;
  if (!rows || (sizes[2] != 1 && sizes[2] != static_cast<double>(row.width())))
    refuse(node, "cannot become a layer, because it copies values");
  return on_each_row(node, row, shaped_);
}

ImportValue Importer::as_columns(const onnx::NodeProto& node, const ImportValue& x) {
  if (x.rows == 0)
    refuse(node, "cannot become a layer, because it joins the rows of a sequence, and their number differs");
  const std::string name = layers.single(x);
  const ImportedLayer* const made = layers.maker(name);
  ImportValue out;
  if (made != nullptr && made->type == "concat_sequences") {
    out.parts = made->inputs;
    return out;
  }
  out.parts = {{name, x.width()}};
  return layer(node, "pad_rows", out, x.rows * x.width(), {{"length", x.rows}});
}

bool Importer::is_shape(const OnnxConstant& shape, int64_t width, bool flat) const {
  const std::vector<double>& sizes = shape.values;
  if (sizes.size() != (flat ? 1 : 2)) return false;
  if (flat) return width == 1 && is_batch(sizes[0], true);
  const bool last = sizes[1] == static_cast<double>(width) || (sizes[1] == -1 && sizes[0] != -1) || sizes[1] == 0;
  return is_batch(sizes[0], true) && last;
}

ImportValue Importer::logit_product(const std::string& name, const ImportValue& logits) {
  ImportedLayer made{.type = "logit_product", .inputs = logits.parts};
  return layers.add(name, std::move(made), 1);
}

ImportValue Importer::layer(const onnx::NodeProto& node, const char* type, const ImportValue& x, int64_t width,
                            nlohmann::ordered_json options) {
  ImportedLayer made{
      .type = type, .inputs = layers.plain(x).parts, .options = std::move(options), .node = described(node)};
  const std::string kind = made.options.contains("kind") ? made.options["kind"].get<std::string>() : type;
  ImportValue out = layers.add(kind, std::move(made), width);
  out.flat = x.flat;
  return out;
}

}  // namespace tessera::cli
