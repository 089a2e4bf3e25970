// Nodes of an ONNX graph become layers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "onnx/constants.h"
#include "onnx/layer_builder.h"
#include "tessera/error.h"

namespace onnx {
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace tessera::cli {

constexpr int64_t kMostValues = 1 << 20;  // values of a sample, in an input or in a value of the graph
constexpr int64_t kMostVectors = 256;     // vectors of a sample that become separate inputs of a layer

class Importer;
using TranslateNode = std::vector<ImportValue> (*)(Importer&, const onnx::NodeProto&);
using OperatorTable = std::map<std::string, TranslateNode>;

class Importer {
 public:
  using Values = std::vector<ImportValue>;

  // `inputs`: the graph's inputs as values. `batch`: the number of samples that the file's shapes state; -1: none.
  Importer(const onnx::GraphProto& graph, const std::string& file, std::map<std::string, ImportValue> inputs,
           std::set<std::string> taken, int64_t batch);

  // Reads all nodes. kUnimplemented: the first one that no layer computes, by operator, name and inputs.
  void run();
  // The value of an output of the graph.
  ImportValue output(const std::string& name);

  // Names of the file's weights that several nodes take. Each node's layer has parameters of its own.
  std::vector<std::string> shared_weights() const;

  // ---- for translations of operators

  template <class... Parts>
  [[noreturn]] void refuse(const onnx::NodeProto& node, const Parts&... why) const {
    fail(Code::kUnimplemented, layers.file(), ": ", described(node), ' ', str_cat(why...));
  }
  static std::string described(const onnx::NodeProto& node);  // the operator Relu of node "act" (inputs "x")

  // Returns nullptr if it is not a constant, or if the node has no such input.
  const OnnxConstant* constant(const onnx::NodeProto& node, int input) const;
  const OnnxConstant& needed_constant(const onnx::NodeProto& node, int input, const char* what) const;
  double number(const onnx::NodeProto& node, int input, const char* what) const;
  const ImportValue& value(const onnx::NodeProto& node, int input) const;   // of the form kRow
  const ImportValue& matrix(const onnx::NodeProto& node, int input) const;  // of any form
  // True if only one node takes the first output of `node`.
  bool is_sole(const onnx::NodeProto& node) const;
  // Computes a node whose inputs are sequences, on each of their rows.
  Values row_by_row(const onnx::NodeProto& node);
  // as_sequence() turns a matrix for each sample, [batch, rows, width], into a sequence of its rows; as_columns() does
  // the reverse.
  ImportValue as_sequence(const onnx::NodeProto& node, const ImportValue& x);
  ImportValue as_columns(const onnx::NodeProto& node, const ImportValue& x);
  // Repeats a row of each sample, [batch, 1, width], for each row of a sequence.
  ImportValue on_each_row(const onnx::NodeProto& node, const ImportValue& row, const ImportValue& like);
  // The same for the sequence whose shape is in a constant.
  ImportValue expanded(const onnx::NodeProto& node, const OnnxConstant& shape);
  // Refuses `axis` unless it is the axis of a sample's values: the last one, which must also be the second one.
  void need_last_axis(const onnx::NodeProto& node, int64_t axis, const ImportValue& x) const;
  // True if a size in a shape is the number of samples. `open`: -1 also counts as that.
  bool is_batch(double size, bool open) const;
  // True if the shape is [batch, width] of the value or, with `flat`, [batch].
  bool is_shape(const OnnxConstant& shape, int64_t width, bool flat) const;
  // Adds a layer for an operator, over all columns of a value.
  ImportValue layer(const onnx::NodeProto& node, const char* type, const ImportValue& x, int64_t width,
                    nlohmann::ordered_json options = nlohmann::ordered_json::object());

  // Adds a layer for the logit of the product of probabilities, which are given as logits.
  ImportValue logit_product(const std::string& name, const ImportValue& logits);

  LayerBuilder layers;

 private:
  void fold_shape(const onnx::NodeProto& node, const ImportValue& x);
  bool takes_matrix(const onnx::NodeProto& node) const;
  bool takes_sequence(const onnx::NodeProto& node) const;
  // Turns matrices into sequences if a node takes them together with sequences, or in a way that only works for
  // sequences. Returns the original matrices, by name.
  std::map<std::string, ImportValue> make_sequences(const onnx::NodeProto& node);
  Values translate(const onnx::NodeProto& node);
  bool fold_node(const onnx::NodeProto& node);

  const onnx::GraphProto& graph_;
  std::map<std::string, ImportValue> values_;
  std::map<std::string, OnnxConstant> constants_;
  std::map<std::string, int> uses_;
  std::map<std::string, std::set<std::string>> origins_;  // the file's tensors that a constant is computed from
  std::map<std::string, int> takers_;                     // the number of nodes of layers that take such a tensor
  OperatorTable operators_, of_matrices_, of_sequences_;
  std::map<std::string, std::string> sequences_;  // names of sequences, by the rows that they were made of
  ImportValue shaped_;                            // the last sequence whose shape was asked for
  int64_t batch_;
};

// True if x is the length of a vector, which is a step in the formula of l2_norm. at_least() translates the node that
// bounds x.
bool is_length(const Importer& importer, const ImportValue& x);
Importer::Values at_least(Importer& importer, const onnx::NodeProto& node);

// Each file of operators adds its operators to a table.
void add_layer_operators(OperatorTable& table);
void add_arithmetic_operators(OperatorTable& table);
void add_shape_operators(OperatorTable& table);
void add_matrix_operators(OperatorTable& table);    // for nodes with an input that is not kRow
void add_sequence_operators(OperatorTable& table);  // for nodes with a sequence that are not computed row by row

// Reshapes a value [batch, width] to matrices [batch, rows, columns]. Refuses other shapes.
ImportValue as_matrix(const Importer& importer, const onnx::NodeProto& node, ImportValue x, const OnnxConstant& shape);

}  // namespace tessera::cli
