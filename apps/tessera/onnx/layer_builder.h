// Layers in the making, and the values between them, while the nodes of an ONNX file are read.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::cli {

// Begins the type of a layer that Tessera does not have. It stands for a step of a formula, such as Gelu's Erf, until
// all nodes of the formula are read.
inline constexpr char kStepOfFormula = '?';

// An output of a layer, or an input of the model.
struct ValuePart {
  std::string name;  // as in LayerSpec::inputs
  int64_t width = 0;
  bool operator==(const ValuePart&) const = default;
};

struct ImportedLayer {
  std::string name, type;
  std::vector<ValuePart> inputs;
  nlohmann::ordered_json options = nlohmann::ordered_json::object();
  std::map<std::string, Tensor> parameters;  // and buffers, by the layer's own names
  std::string node;                          // description of the node that it was made of

  bool is_step() const { return type.front() == kStepOfFormula; }
};

struct ImportedHead {
  std::string name, input, loss;
  std::string label = "label";
  double weight = 1;
};

// The shape of a value: [batch, width]; a matrix for each sample, [batch, rows, width / rows], or [batch, width / rows,
// rows]; as a column or a row of vectors, [batch, rows, 1, width / rows] or [batch, 1, rows, width / rows], or the
// products of all pairs of two; or the dot products of its rows, [batch, rows, rows], or in a list, [batch, rows ·
// rows]. A sequence has width values in each of a sample's rows: kRow is any order of its axes; kScores are products of
// all its rows.
enum class ValueForm {
  kRow,
  kMatrix,
  kTransposed,
  kColumnOfRows,
  kRowOfRows,
  kPairs,
  kProducts,
  kProductList,
  kScores
};

// Values of each sample: several parts side by side, each column multiplied by a constant and moved by another one.
// Constants wait there because most can become part of a linear layer.
struct ImportValue {
  std::vector<ValuePart> parts;
  std::vector<double> scale, shift;  // of each column; empty: 1 and 0
  bool flat = false;                 // [batch] instead of [batch, 1]
  bool sole = false;                 // nothing else takes the output of the layer that is its only part
  ValueForm form = ValueForm::kRow;
  bool sequence = false;
  // A sequence has the parts of its width, in the order of the columns, and for each dimension of its shape the axes
  // that it consists of (import_axes.h).
  std::vector<int64_t> factors;
  std::vector<std::vector<int>> dims;
  int64_t heads = 0;         // of scores
  int64_t rows = 0;          // of a form with a matrix; of a sequence that has this many in each sample, otherwise 0
  bool batch_last = false;   // the batch is the last dimension
  std::string constants_of;  // description of the node that has brought scale or shift

  int64_t width() const;
  bool is_plain() const { return scale.empty() && shift.empty(); }
  double scale_at(size_t column) const { return scale.empty() ? 1 : scale[column]; }
  double shift_at(size_t column) const { return shift.empty() ? 0 : shift[column]; }
  bool is_uniform(size_t first, size_t columns) const;  // these columns have the same scale and shift
};

class LayerBuilder {
 public:
  // `taken`: names that no layer may have. `file` begins errors.
  LayerBuilder(std::set<std::string> taken, std::string file) : taken_(std::move(taken)), file_(std::move(file)) {}

  // Adds a layer and returns its first output. `wanted` becomes its name, changed so that it is one.
  ImportValue add(const std::string& wanted, ImportedLayer layer, int64_t width);
  // A linear layer over a value whose scale and shift it takes over. `weight`: [out, in]; `bias` may be empty.
  ImportValue linear(const std::string& wanted, const ImportValue& x, std::vector<double> weight,
                     std::vector<double> bias, const std::string& node);
  // x · scale + shift, column by column. It changes the linear layer before it if there is one that nothing else reads.
  ImportValue scaled(ImportValue x, const std::vector<double>& scale, const std::vector<double>& shift,
                     const std::string& node);
  // The same value without scale and shift, which become layers. kUnimplemented: the columns of a part differ in them.
  ImportValue plain(const ImportValue& x);
  // The same value as one name, for layers that do not join their inputs.
  std::string single(const ImportValue& x);
  // Columns [first, first + width).
  ImportValue columns(const ImportValue& x, int64_t first, int64_t width);

  // nullptr: it is an input of the model.
  const ImportedLayer* maker(const std::string& name) const;
  std::vector<ImportedLayer>& layers() { return layers_; }
  const std::set<std::string>& taken() const { return taken_; }
  const std::string& file() const { return file_; }
  std::string fresh_name(const std::string& wanted);

 private:
  ImportValue split(const ValuePart& part, int64_t first, int64_t width);

  std::set<std::string> taken_;
  std::string file_;
  std::vector<ImportedLayer> layers_;
  std::map<std::string, std::string> concats_;  // by names of parts
  std::map<std::string, std::string> affines_;  // by name of the input, factor and offset
};

// A name that layers and heads may have: letters, digits, "_" and "-".
std::string layer_name_of(const std::string& text);

// Leaves the layers that heads need. kUnimplemented: one is only a step of a formula, so its operator is unknown.
void drop_unused_layers(std::vector<ImportedLayer>& layers, const std::vector<ImportedHead>& heads,
                        const std::string& file);
// Joins linear layers and activations that follow each other as an mlp. `taken`: names that it may not have.
void merge_into_mlps(std::vector<ImportedLayer>& layers, std::vector<ImportedHead>& heads,
                     const std::set<std::string>& taken);

}  // namespace tessera::cli
