#include "onnx/graph_writer.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cctype>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

void set_shape(onnx::ValueInfoProto& info, const std::string& name, int32_t type,
               const std::vector<std::string>& shape) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const std::string& size : shape) {
    auto* dimension = tensor->mutable_shape()->add_dim();
    if (!size.empty() && std::all_of(size.begin(), size.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      dimension->set_dim_value(std::stoll(size));
    else
      dimension->set_dim_param(size);
  }
}

struct SetAttribute {
  onnx::AttributeProto& to;
  void operator()(int64_t value) const {
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(value);
  }
  void operator()(float value) const {
    to.set_type(onnx::AttributeProto::FLOAT);
    to.set_f(value);
  }
  void operator()(const std::vector<int64_t>& values) const {
    to.set_type(onnx::AttributeProto::INTS);
    to.mutable_ints()->Add(values.begin(), values.end());
  }
};

}  // namespace

std::string GraphWriter::fresh(const char* op) { return str_cat(op, '_', next_++); }

std::string GraphWriter::node(const char* op, const Names& inputs, const Attributes& attributes) {
  onnx::NodeProto& node = *graph_.add_node();
  const std::string name = fresh(op);
  node.set_name(name);
  node.set_op_type(op);
  node.mutable_input()->Add(inputs.begin(), inputs.end());
  for (const auto& [key, value] : attributes) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(key);
    std::visit(SetAttribute{attribute}, value);
  }
  node.add_output(name);
  return name;
}

GraphWriter::Names GraphWriter::split(const std::string& value, int64_t axis, const std::vector<int64_t>& sizes) {
  Names out;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    out.push_back(node("Slice", {value, integers({at}), integers({at + size}), integers({axis})}));
    at += size;
  }
  return out;
}

std::string GraphWriter::input(const std::string& name, OnnxType type, const std::vector<std::string>& shape) {
  set_shape(*graph_.add_input(), name, static_cast<int32_t>(type), shape);
  return name;
}

void GraphWriter::output(const std::string& value, const std::string& name, const std::vector<std::string>& shape) {
  onnx::NodeProto& node = *graph_.add_node();
  node.set_name(str_cat("output ", name));
  node.set_op_type("Identity");
  node.add_input(value);
  node.add_output(name);
  set_shape(*graph_.add_output(), name, onnx::TensorProto::FLOAT, shape);
}

onnx::TensorProto& GraphWriter::constant(const std::string& name, int32_t type, const std::vector<int64_t>& shape) {
  onnx::TensorProto& out = *graph_.add_initializer();
  out.set_name(name);
  out.set_data_type(type);
  out.mutable_dims()->Add(shape.begin(), shape.end());
  return out;
}

std::string GraphWriter::integers(const std::vector<int64_t>& values) {
  std::string key = "i";
  for (const int64_t v : values) key += str_cat(' ', v);
  const auto [at, added] = constants_.emplace(key, "");
  if (added) {
    at->second = fresh("integers");
    const auto count = static_cast<int64_t>(values.size());
    constant(at->second, onnx::TensorProto::INT64, {count}).mutable_int64_data()->Add(values.begin(), values.end());
  }
  return at->second;
}

std::string GraphWriter::integer(int64_t value) {
  const auto [at, added] = constants_.emplace(str_cat("n ", value), "");
  if (added) {
    at->second = fresh("integer");
    constant(at->second, onnx::TensorProto::INT64, {}).add_int64_data(value);
  }
  return at->second;
}

std::string GraphWriter::number(double value) {
  const auto [at, added] = constants_.emplace(str_cat("f ", std::bit_cast<uint32_t>(static_cast<float>(value))), "");
  if (added) {
    at->second = fresh("number");
    constant(at->second, onnx::TensorProto::FLOAT, {}).add_float_data(static_cast<float>(value));
  }
  return at->second;
}

std::string GraphWriter::doubles(const std::vector<double>& values) {
  const std::string name = fresh("doubles");
  const auto count = static_cast<int64_t>(values.size());
  constant(name, onnx::TensorProto::DOUBLE, {count}).mutable_double_data()->Add(values.begin(), values.end());
  return name;
}

std::string GraphWriter::label_encoder(const std::string& text, const std::vector<std::string>& words) {
  const std::string out = node("LabelEncoder", {text}, {{"default_int64", int64_t{0}}});
  onnx::NodeProto& encoder = *graph_.mutable_node(graph_.node_size() - 1);
  encoder.set_domain("ai.onnx.ml");
  onnx::AttributeProto& keys = *encoder.add_attribute();
  keys.set_name("keys_strings");
  keys.set_type(onnx::AttributeProto::STRINGS);
  onnx::AttributeProto& values = *encoder.add_attribute();
  values.set_name("values_int64s");
  values.set_type(onnx::AttributeProto::INTS);
  keys.add_strings("");
  values.add_ints(-1);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) continue;
    keys.add_strings(words[i]);
    values.add_ints(static_cast<int64_t>(i) + 1);
  }
  return out;
}

std::string GraphWriter::tensor(const std::string& name, const Tensor& values) {
  const bool floats = values.dtype() == DType::kFloat32;
  TESSERA_CHECK(floats || values.dtype() == DType::kInt64, "a type that parameters and buffers have");
  const Shape& shape = values.shape();
  onnx::TensorProto& out = constant(name, floats ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64, shape);
  const size_t bytes = static_cast<size_t>(values.numel()) * (floats ? sizeof(float) : sizeof(int64_t));
  out.set_raw_data(floats ? static_cast<const void*>(values.data<float>()) : values.data<int64_t>(), bytes);
  return name;
}

std::string GraphWriter::external(const std::string& name, const std::vector<int64_t>& shape, const std::string& file,
                                  int64_t offset, int64_t bytes) {
  onnx::TensorProto& out = constant(name, onnx::TensorProto::FLOAT, shape);
  out.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto say = [&](const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *out.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  say("location", file);
  say("offset", str_cat(offset));
  say("length", str_cat(bytes));
  return name;
}

}  // namespace tessera::cli
