// Writes the nodes and constants of an ONNX graph (opset 17), one value after the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tensor.h"

namespace onnx {
class GraphProto;
class NodeProto;
class TensorProto;
class ValueInfoProto;
}  // namespace onnx

namespace tessera::cli {

// Types of values, with the numbers of onnx::TensorProto.
enum class OnnxType : int32_t { kFloat = 1, kInt64 = 7, kString = 8, kDouble = 11 };

// Functions that add a value return its name, by which nodes take it.
class GraphWriter {
 public:
  using Names = std::vector<std::string>;
  using Attribute = std::pair<const char*, std::variant<int64_t, float, std::vector<int64_t>>>;
  using Attributes = std::vector<Attribute>;

  // `graph` must outlive the writer.
  explicit GraphWriter(onnx::GraphProto& graph) : graph_(graph) {}

  // Adds a node with one output.
  std::string node(const char* op, const Names& inputs, const Attributes& attributes = {});
  // Adds a node with several outputs.
  Names split(const std::string& value, int64_t axis, const std::vector<int64_t>& sizes);
  // Makes the value an output of the graph, under this name.
  void output(const std::string& value, const std::string& name, const std::vector<std::string>& shape);
  // Returns each text's place among the words, from 1; 0: it is not among them; -1: it is empty.
  std::string label_encoder(const std::string& text, const std::vector<std::string>& words);
  // A shape has numbers, and names of dimensions that a caller chooses.
  std::string input(const std::string& name, OnnxType type, const std::vector<std::string>& shape);

  std::string integers(const std::vector<int64_t>& values);  // int64 [n]
  std::string integer(int64_t value);                        // int64 []
  std::string number(double value);                          // float32 []
  std::string doubles(const std::vector<double>& values);    // float64 [n]
  std::string tensor(const std::string& name, const Tensor& values);
  // Adds a constant whose values are in a file beside the model: `bytes` bytes from `offset` on.
  std::string external(const std::string& name, const std::vector<int64_t>& shape, const std::string& file,
                       int64_t offset, int64_t bytes);

  std::string add(const std::string& a, const std::string& b) { return node("Add", {a, b}); }
  std::string subtract(const std::string& a, const std::string& b) { return node("Sub", {a, b}); }
  std::string multiply(const std::string& a, const std::string& b) { return node("Mul", {a, b}); }
  std::string divide(const std::string& a, const std::string& b) { return node("Div", {a, b}); }
  std::string unsqueeze(const std::string& a, int64_t axis) { return node("Unsqueeze", {a, integers({axis})}); }
  std::string reshape(const std::string& a, const std::vector<int64_t>& shape) {
    return node("Reshape", {a, integers(shape)});
  }
  std::string sum_over(const std::string& a, int64_t axis) {
    return node("ReduceSum", {a, integers({axis})}, {{"keepdims", int64_t{0}}});
  }
  std::string cast(const std::string& a, OnnxType type) {
    return node("Cast", {a}, {{"to", static_cast<int64_t>(type)}});
  }
  std::string minimum(const std::string& a, const std::string& b) { return node("Min", {a, b}); }
  std::string maximum(const std::string& a, const std::string& b) { return node("Max", {a, b}); }
  // Joins values along an axis. A single value stays as it is.
  std::string concat(const Names& values, int64_t axis = -1) {
    return values.size() == 1 ? values[0] : node("Concat", values, {{"axis", axis}});
  }
  std::string transpose(const std::string& a, const std::vector<int64_t>& order) {
    return node("Transpose", {a}, {{"perm", order}});
  }

 private:
  std::string fresh(const char* op);
  onnx::TensorProto& constant(const std::string& name, int32_t type, const std::vector<int64_t>& shape);

  onnx::GraphProto& graph_;
  int64_t next_ = 0;
  std::map<std::string, std::string> constants_;  // by type and values
};

}  // namespace tessera::cli
