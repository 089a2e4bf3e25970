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

constexpr int64_t kMostValues = 1 << 20;  // of a sample, in an input or a value
constexpr int64_t kMostVectors = 256;     // of a sample that become inputs of a layer each

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

  // ---- for translations of operators

  template <class... Parts>
  [[noreturn]] void refuse(const onnx::NodeProto& node, const Parts&... why) const {
    fail(Code::kUnimplemented, layers.file(), ": ", described(node), ' ', str_cat(why...));
  }
  static std::string described(const onnx::NodeProto& node);  // the operator Relu of node "act" (inputs "x")

  const OnnxConstant* constant(const onnx::NodeProto& node, int input) const;  // nullptr: it is none, or left out
  const OnnxConstant& needed_constant(const onnx::NodeProto& node, int input, const char* what) const;
  double number(const onnx::NodeProto& node, int input, const char* what) const;
  const ImportValue& value(const onnx::NodeProto& node, int input) const;   // of the form kRow
  const ImportValue& matrix(const onnx::NodeProto& node, int input) const;  // of any form
  // True if nothing but one node takes the first output of `node`.
  bool is_sole(const onnx::NodeProto& node) const;
  // Computes a node on each row of its inputs, which are sequences, as on samples.
  Values row_by_row(const onnx::NodeProto& node);
  // A matrix for each sample, [batch, rows, width], as a sequence of its rows, and back.
  ImportValue as_sequence(const onnx::NodeProto& node, const ImportValue& x);
  ImportValue as_columns(const onnx::NodeProto& node, const ImportValue& x);
  // A row of each sample, [batch, 1, width], on each row of a sequence.
  ImportValue on_each_row(const onnx::NodeProto& node, const ImportValue& row, const ImportValue& like);
  // The same, for the rows of the sequence whose shape a constant has.
  ImportValue expanded(const onnx::NodeProto& node, const OnnxConstant& shape);
  // Refuses an axis of x that is not that of the values of a sample, which is the last one and the second one.
  void need_last_axis(const onnx::NodeProto& node, int64_t axis, const ImportValue& x) const;
  // True if a size in a shape is that of the batch. `open`: -1 is.
  bool is_batch(double size, bool open) const;
  // True if the shape is [batch, width] of the value, or with `flat` [batch].
  bool is_shape(const OnnxConstant& shape, int64_t width, bool flat) const;
  // An operator's layer over all columns of a value.
  ImportValue layer(const onnx::NodeProto& node, const char* type, const ImportValue& x, int64_t width,
                    nlohmann::ordered_json options = nlohmann::ordered_json::object());

  // The logit of the product of the probabilities of logits.
  ImportValue logit_product(const std::string& name, const ImportValue& logits);

  LayerBuilder layers;

 private:
  void fold_shape(const onnx::NodeProto& node, const ImportValue& x);
  bool takes_matrix(const onnx::NodeProto& node) const;
  bool takes_sequence(const onnx::NodeProto& node) const;
  // Makes sequences of matrices that a node takes beside sequences, or as only sequences can be taken. Returns these
  // matrices, by name.
  std::map<std::string, ImportValue> make_sequences(const onnx::NodeProto& node);
  Values translate(const onnx::NodeProto& node);
  bool fold_node(const onnx::NodeProto& node);

  const onnx::GraphProto& graph_;
  std::map<std::string, ImportValue> values_;
  std::map<std::string, OnnxConstant> constants_;
  std::map<std::string, int> uses_;
  OperatorTable operators_, of_matrices_, of_sequences_;
  std::map<std::string, std::string> sequences_;  // by the rows that they are made of
  ImportValue shaped_;                            // the sequence whose shape was asked for last
  int64_t batch_;
};

// True if x is the length of a vector, a step of the formula of l2_norm. at_least() translates the node that bounds it.
bool is_length(const Importer& importer, const ImportValue& x);
Importer::Values at_least(Importer& importer, const onnx::NodeProto& node);

// Each file of operators adds its own.
void add_layer_operators(OperatorTable& table);
void add_arithmetic_operators(OperatorTable& table);
void add_shape_operators(OperatorTable& table);
void add_matrix_operators(OperatorTable& table);    // of nodes with an input that is no kRow
void add_sequence_operators(OperatorTable& table);  // of nodes with a sequence, where row by row is not all

// A value [batch, width] as matrices of this shape, [batch, rows, columns]; refuses others.
ImportValue as_matrix(const Importer& importer, const onnx::NodeProto& node, ImportValue x, const OnnxConstant& shape);

}  // namespace tessera::cli
