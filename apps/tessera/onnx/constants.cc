#include "onnx/constants.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "tessera/error.h"
#include "tessera/sdk/half.h"

namespace tessera::cli {
namespace {

using Folded = std::optional<OnnxConstant>;
using Constants = std::vector<const OnnxConstant*>;

constexpr int64_t kMostFolded = int64_t{1} << 26;  // elements of a constant that is made of others

// Returns the number of elements; -1: more than a file can have.
int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t out = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(out, size, &out)) return -1;
  }
  return out;
}

template <class T>
void append_raw(const std::string& raw, std::vector<double>& out) {
  for (size_t at = 0; at + sizeof(T) <= raw.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, raw.data() + at, sizeof(T));
    out.push_back(static_cast<double>(value));
  }
}

// Reads the bytes of a tensor from a file beside the model. An absolute name, or one with "..", is refused.
std::string external_bytes(const onnx::TensorProto& tensor, const std::string& file) {
  std::map<std::string, std::string> entries;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) entries[entry.key()] = entry.value();
  const std::filesystem::path name = entries["location"];
  const auto refuse = [&](const std::string& why) {
    fail(Code::kDataLoss, file, ": the values of \"", tensor.name(), "\" are in the file \"", name.string(), "\", ",
         why);
  };
  if (name.empty() || name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end())
    refuse("which is not beside it");
  const std::filesystem::path path = std::filesystem::path(file).parent_path() / name;
  std::ifstream in(path, std::ios::binary);
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (!in || error) refuse("which cannot be read: " + path.string());
  const auto number = [&](const char* key, int64_t otherwise) {
    return entries.contains(key) ? std::strtoll(entries[key].c_str(), nullptr, 10) : otherwise;
  };
  const int64_t offset = number("offset", 0);
  const int64_t length = number("length", size - offset);
  if (offset < 0 || length < 0 || offset > size || length > size - offset) refuse("which is too short");
  std::string out(static_cast<size_t>(length), '\0');
  in.seekg(offset);
  in.read(out.data(), length);
  if (!in) refuse("which cannot be read: " + path.string());
  return out;
}

// Appends the elements in raw bytes. False: the type is not one of numbers.
bool append_elements(const std::string& raw, int type, OnnxConstant& out) {
  std::vector<double>& to = out.values;
  switch (type) {
    case onnx::TensorProto::FLOAT:
      append_raw<float>(raw, to);
      return true;
    case onnx::TensorProto::DOUBLE:
      append_raw<double>(raw, to);
      return true;
    case onnx::TensorProto::INT64:
      append_raw<int64_t>(raw, to);
      break;
    case onnx::TensorProto::INT32:
      append_raw<int32_t>(raw, to);
      break;
    case onnx::TensorProto::INT8:
      append_raw<int8_t>(raw, to);
      break;
    case onnx::TensorProto::UINT8:
    case onnx::TensorProto::BOOL:
      append_raw<uint8_t>(raw, to);
      break;
    case onnx::TensorProto::FLOAT16:
      append_raw<uint16_t>(raw, to);
      for (double& v : to) v = sdk::half_to_float(static_cast<uint16_t>(v));
      return true;
    default:
      return false;
  }
  return out.integers = true;
}

// True for sizes that the file leaves open.
bool is_open_size(double value) { return std::abs(value) >= -kBatchSize; }

// An index of `to`'s elements into `from`, which is broadcast to it.
size_t broadcast_index(const std::vector<int64_t>& from, const std::vector<int64_t>& to, size_t element) {
  size_t index = 0, stride = 1;
  for (size_t d = 0; d < to.size(); ++d) {
    const auto size = static_cast<size_t>(to[to.size() - 1 - d]);
    const size_t place = element % size;
    element /= size;
    if (d >= from.size()) continue;
    const auto own = static_cast<size_t>(from[from.size() - 1 - d]);
    index += (own == 1 ? 0 : place) * stride;
    stride *= own;
  }
  return index;
}

// `sizes`: open sizes may be multiplied.
Folded elementwise(const Constants& in, const std::function<double(double, double)>& f, bool sizes = false) {
  if (in.size() != 2) return std::nullopt;
  const OnnxConstant &a = *in[0], &b = *in[1];
  OnnxConstant out{.integers = a.integers};
  out.shape.assign(std::max(a.shape.size(), b.shape.size()), 1);
  for (const OnnxConstant* one : in) {
    for (size_t d = 0; d < one->shape.size(); ++d) {
      int64_t& size = out.shape[out.shape.size() - 1 - d];
      const int64_t own = one->shape[one->shape.size() - 1 - d];
      if (own != 1 && size != 1 && own != size) return std::nullopt;
      if (own != 1) size = own;
    }
    if (!sizes && std::any_of(one->values.begin(), one->values.end(), is_open_size)) return std::nullopt;
  }
  const int64_t count = elements_of(out.shape);
  if (count < 0 || count > kMostFolded) return std::nullopt;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const double value =
        f(a.values[broadcast_index(a.shape, out.shape, i)], b.values[broadcast_index(b.shape, out.shape, i)]);
    out.values.push_back(out.integers ? std::trunc(value) : value);
  }
  return out;
}

Folded mapped(const Constants& in, double (*f)(double)) {
  if (in.size() != 1) return std::nullopt;
  OnnxConstant out = *in[0];
  for (double& v : out.values) v = f(v);
  return out;
}

Folded transposed(const onnx::NodeProto& node, const Constants& in) {
  const OnnxConstant& x = *in.at(0);
  const std::vector<int64_t> order = integers_attribute(node, "perm");
  if (x.shape.size() != 2) return x.shape.size() < 2 ? Folded(x) : std::nullopt;
  if (order == std::vector<int64_t>{0, 1}) return x;
  OnnxConstant out = x;
  std::swap(out.shape[0], out.shape[1]);
  const auto rows = static_cast<size_t>(x.shape[0]), columns = static_cast<size_t>(x.shape[1]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) out.values[c * rows + r] = x.values[r * columns + c];
  }
  return out;
}

Folded reshaped(const Constants& in) {
  if (in.size() != 2) return std::nullopt;
  OnnxConstant out = *in[0];
  int64_t known = 1;
  std::vector<int64_t> shape;
  for (const double v : in[1]->values) {
    if (is_open_size(v)) return std::nullopt;
    const bool same = v == 0 && shape.size() < out.shape.size();
    shape.push_back(same ? out.shape[shape.size()] : whole_number(v));
    if (shape.back() >= 0 && __builtin_mul_overflow(known, shape.back(), &known)) return std::nullopt;
  }
  const auto count = static_cast<int64_t>(out.values.size());
  for (int64_t& size : shape) {
    if (size < 0) size = known > 0 ? count / known : 0;
  }
  out.shape = shape;
  return elements_of(shape) == count ? Folded(out) : std::nullopt;
}

// Adds dimensions of one element, or removes them.
Folded other_rank(const onnx::NodeProto& node, const Constants& in) {
  OnnxConstant out = *in.at(0);
  std::vector<int64_t> axes = integers_attribute(node, "axes");
  if (in.size() > 1) axes = whole_numbers(*in[1]);
  if (node.op_type() == "Squeeze") {
    std::vector<int64_t> left;
    const auto rank = static_cast<int64_t>(out.shape.size());
    for (int64_t d = 0; d < rank; ++d) {
      const bool named = std::count(axes.begin(), axes.end(), d) + std::count(axes.begin(), axes.end(), d - rank) > 0;
      if (!(named || (axes.empty() && out.shape[static_cast<size_t>(d)] == 1)))
        left.push_back(out.shape[static_cast<size_t>(d)]);
    }
    out.shape = left;
    return elements_of(left) == static_cast<int64_t>(out.values.size()) ? Folded(out) : std::nullopt;
  }
  std::sort(axes.begin(), axes.end());
  for (const int64_t axis : axes) {
    const int64_t at = axis < 0 ? axis + static_cast<int64_t>(out.shape.size() + 1) : axis;
    if (at < 0 || at > static_cast<int64_t>(out.shape.size())) return std::nullopt;
    out.shape.insert(out.shape.begin() + at, 1);
  }
  return out;
}

Folded concatenated(const Constants& in) {
  OnnxConstant out = *in.at(0);
  out.values.clear();
  for (const OnnxConstant* one : in) {
    if (one->shape.size() != 1) return std::nullopt;
    out.values.insert(out.values.end(), one->values.begin(), one->values.end());
    if (std::ssize(out.values) > kMostFolded) return std::nullopt;
  }
  out.shape = {static_cast<int64_t>(out.values.size())};
  return out;
}

Folded gathered(const onnx::NodeProto& node, const Constants& in) {
  if (in.size() != 2 || in[0]->shape.size() != 1 || integer_attribute(node, "axis", 0) != 0) return std::nullopt;
  OnnxConstant out{.shape = in[1]->shape, .integers = in[0]->integers};
  const auto count = static_cast<int64_t>(in[0]->values.size());
  for (const double v : in[1]->values) {
    const int64_t at = whole_number(v) + (v < 0 ? count : 0);
    if (at < 0 || at >= count) return std::nullopt;
    out.values.push_back(in[0]->values[static_cast<size_t>(at)]);
  }
  return out;
}

// A slice of a list with step 1, such as a part of a shape.
Folded sliced(const Constants& in) {
  if (in.size() < 3 || in[0]->shape.size() != 1 || in[1]->values.size() != 1 || in[2]->values.size() != 1)
    return std::nullopt;
  if (in.size() > 4 && in[4]->values != std::vector<double>{1}) return std::nullopt;
  const auto count = static_cast<double>(in[0]->values.size());
  const auto place = [&](double v) { return whole_number(std::clamp(v < 0 ? v + count : v, 0.0, count)); };
  const int64_t from = place(in[1]->values[0]), to = std::max(from, place(in[2]->values[0]));
  OnnxConstant out = *in[0];
  out.values.assign(in[0]->values.begin() + from, in[0]->values.begin() + to);
  out.shape = {to - from};
  return out;
}

Folded constant_node(const onnx::NodeProto& node, const std::string& file) {
  OnnxConstant out;
  if (const auto* a = find_attribute(node, "value")) return constant_of(a->t(), file);
  if (const auto* a = find_attribute(node, "value_float"))
    return OnnxConstant{{}, {static_cast<double>(a->f())}, false};
  if (const auto* a = find_attribute(node, "value_int")) return OnnxConstant{{}, {static_cast<double>(a->i())}, true};
  if (const auto* a = find_attribute(node, "value_floats")) out.values.assign(a->floats().begin(), a->floats().end());
  if (const auto* a = find_attribute(node, "value_ints")) {
    out.values.assign(a->ints().begin(), a->ints().end());
    out.integers = true;
  }
  out.shape = {static_cast<int64_t>(out.values.size())};
  return out.values.empty() ? std::nullopt : Folded(out);
}

}  // namespace

int64_t whole_number(double value) {
  constexpr double kMost = 2147483648.0;
  return static_cast<int64_t>(std::isnan(value) ? kMost : std::clamp(value, -kMost, kMost));
}

std::vector<int64_t> whole_numbers(const OnnxConstant& constant) {
  std::vector<int64_t> out;
  for (const double value : constant.values) out.push_back(whole_number(value));
  return out;
}

const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const char* name) {
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

int64_t integer_attribute(const onnx::NodeProto& node, const char* name, int64_t otherwise) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a ? a->i() : otherwise;
}

double number_attribute(const onnx::NodeProto& node, const char* name, double otherwise) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a ? static_cast<double>(a->f()) : otherwise;
}

std::vector<int64_t> integers_attribute(const onnx::NodeProto& node, const char* name) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a ? std::vector<int64_t>(a->ints().begin(), a->ints().end()) : std::vector<int64_t>{};
}

std::string text_attribute(const onnx::NodeProto& node, const char* name, const std::string& otherwise) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a ? a->s() : otherwise;
}

OnnxConstant constant_of(const onnx::TensorProto& tensor, const std::string& file) {
  OnnxConstant out;
  out.shape.assign(tensor.dims().begin(), tensor.dims().end());
  const bool outside = tensor.data_location() == onnx::TensorProto::EXTERNAL;
  bool known = true;
  if (outside || tensor.has_raw_data()) {
    known = append_elements(outside ? external_bytes(tensor, file) : tensor.raw_data(), tensor.data_type(), out);
  } else if (tensor.data_type() == onnx::TensorProto::FLOAT) {
    out.values.assign(tensor.float_data().begin(), tensor.float_data().end());
  } else if (tensor.data_type() == onnx::TensorProto::DOUBLE) {
    out.values.assign(tensor.double_data().begin(), tensor.double_data().end());
  } else if (tensor.data_type() == onnx::TensorProto::INT64) {
    out.values.assign(tensor.int64_data().begin(), tensor.int64_data().end());
    out.integers = true;
  } else if (tensor.data_type() == onnx::TensorProto::INT32 || tensor.data_type() == onnx::TensorProto::BOOL) {
    out.values.assign(tensor.int32_data().begin(), tensor.int32_data().end());
    out.integers = true;
  } else {
    known = false;
  }
  if (!known)
    fail(Code::kUnimplemented, file, ": the constant \"", tensor.name(), "\" has the type ",
         onnx::TensorProto::DataType_Name(tensor.data_type()), ", and must have numbers of 8 bits or more");
  if (elements_of(out.shape) != static_cast<int64_t>(out.values.size()))
    fail(Code::kDataLoss, file, ": the constant \"", tensor.name(), "\" has ", out.values.size(),
         " values, which do not fill its shape");
  return out;
}

std::optional<OnnxConstant> fold(const onnx::NodeProto& node, const Constants& in, const std::string& file) {
  const std::string& op = node.op_type();
  if (op == "Constant") return constant_node(node, file);
  if (in.empty()) return std::nullopt;
  if (op == "Identity" || op == "Dropout") return *in[0];
  if (op == "Shape" && node.attribute_size() == 0) {
    OnnxConstant out{{static_cast<int64_t>(in[0]->shape.size())}, {}, true};
    out.values.assign(in[0]->shape.begin(), in[0]->shape.end());
    return out;
  }
  if (op == "Cast") {
    OnnxConstant out = *in[0];
    const int64_t to = integer_attribute(node, "to", onnx::TensorProto::FLOAT);
    out.integers = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
    for (double& v : out.values) v = out.integers ? std::trunc(v) : v;
    return out;
  }
  if (op == "Transpose") return transposed(node, in);
  if (op == "Reshape") return reshaped(in);
  if (op == "Unsqueeze" || op == "Squeeze") return other_rank(node, in);
  if (op == "Concat") return concatenated(in);
  if (op == "Gather") return gathered(node, in);
  if (op == "Slice") return sliced(in);
  if (op == "Add") return elementwise(in, std::plus<>());
  if (op == "Sub") return elementwise(in, std::minus<>());
  if (op == "Mul") return elementwise(in, std::multiplies<>(), true);
  if (op == "Div") return elementwise(in, [](double a, double b) { return a / b; });
  if (op == "Mod") return elementwise(in, [](double a, double b) { return b == 0 ? 0 : a - b * std::floor(a / b); });
  if (op == "Pow") return elementwise(in, [](double a, double b) { return std::pow(a, b); });
  if (op == "Neg") return mapped(in, [](double v) { return -v; });
  if (op == "Sqrt") return mapped(in, [](double v) { return std::sqrt(v); });
  if (op == "Reciprocal") return mapped(in, [](double v) { return 1 / v; });
  if (op == "Exp") return mapped(in, [](double v) { return std::exp(v); });
  return std::nullopt;
}

}  // namespace tessera::cli
