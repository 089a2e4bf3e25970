// Constants of an ONNX file, and operators that compute constants from constants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onnx {
class AttributeProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace tessera::cli {

// Stands for the number of samples in a constant that is a shape.
inline constexpr double kBatchSize = -4503599627370496.0;
// Stands for the number of rows of a sample's sequence in such a constant.
inline constexpr double kLengthSize = -0x1p90;

struct OnnxConstant {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major
  bool integers = false;       // the file stores them as integers or booleans
};

// Returns a value as an integer, for example a size, an axis or a place. Numbers beyond 2^31, and NaN, become 2^31 with
// their sign: no size of a sample is that large, and a product of two does not overflow.
int64_t whole_number(double value);
std::vector<int64_t> whole_numbers(const OnnxConstant& constant);

// Returns a node's attribute, or the default if the node has no attribute of this name.
const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const char* name);  // nullptr: none
int64_t integer_attribute(const onnx::NodeProto& node, const char* name, int64_t otherwise);
double number_attribute(const onnx::NodeProto& node, const char* name, double otherwise);
std::vector<int64_t> integers_attribute(const onnx::NodeProto& node, const char* name);
std::string text_attribute(const onnx::NodeProto& node, const char* name, const std::string& otherwise);

// Reads a tensor. If its values are not in `file`, they are read from the file beside it that the tensor names.
// kUnimplemented: its type, such as texts. kDataLoss: its values do not fill its shape.
OnnxConstant constant_of(const onnx::TensorProto& tensor, const std::string& file);

// Computes a node if all its inputs are constants; inputs that it leaves out do not count. Returns nullopt if this
// operator, or this use of it, is not supported.
std::optional<OnnxConstant> fold(const onnx::NodeProto& node, const std::vector<const OnnxConstant*>& inputs,
                                 const std::string& file);

}  // namespace tessera::cli
