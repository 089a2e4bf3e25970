// Builds layers, and the values between them, while the nodes of an ONNX file are read.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::cli {

// The first character of a layer type that Tessera does not have. Such a layer stands for a step of a formula, such as
// Gelu's Erf, until all nodes of the formula are read.
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

// Values of each sample. They consist of parts side by side. Each column is multiplied by `scale`, and then `shift` is
// added. These two are kept apart from the layers, because most of them can become part of a linear layer.
struct ImportValue {
  std::vector<ValuePart> parts;
  std::vector<double> scale, shift;  // by column; empty: all 1, and all 0
  bool flat = false;                 // [batch] instead of [batch, 1]
  bool sole = false;                 // the value is one layer's output, which nothing else takes
  ValueForm form = ValueForm::kRow;
  bool sequence = false;
  // For a sequence: the parts of its width, in the order of the columns, and for each dimension of its shape the axes
  // that it consists of (import_axes.h).
  std::vector<int64_t> factors;
  std::vector<std::vector<int>> dims;
  int64_t heads = 0;  // number of heads of kScores
  // Number of rows of a matrix's form; for a sequence, its rows per sample if all samples have equally many, otherwise
  // 0.
  int64_t rows = 0;
  bool batch_last = false;   // the batch is the last dimension
  std::string constants_of;  // description of the node that set scale or shift

  int64_t width() const;
  bool is_plain() const { return scale.empty() && shift.empty(); }
  double scale_at(size_t column) const { return scale.empty() ? 1 : scale[column]; }
  double shift_at(size_t column) const { return shift.empty() ? 0 : shift[column]; }
  bool is_uniform(size_t first, size_t columns) const;  // these columns have the same scale and shift
};

class LayerBuilder {
 public:
  // `taken`: names that layers may not have. `file`: the beginning of errors.
  LayerBuilder(std::set<std::string> taken, std::string file) : taken_(std::move(taken)), file_(std::move(file)) {}

  // Adds a layer and returns its first output. The layer's name is `wanted`, changed if that is no valid name or is
  // taken.
  ImportValue add(const std::string& wanted, ImportedLayer layer, int64_t width);
  // Adds a linear layer over a value, and includes the value's scale and shift in it. `weight`: [out, in]; `bias` may
  // be empty.
  ImportValue linear(const std::string& wanted, const ImportValue& x, std::vector<double> weight,
                     std::vector<double> bias, const std::string& node);
  // Returns x · scale + shift, column by column. If the linear layer before it has no other reader, that layer is
  // changed.
  ImportValue scaled(ImportValue x, const std::vector<double>& scale, const std::vector<double>& shift,
                     const std::string& node);
  // Returns the same value without scale and shift, which become layers. kUnimplemented: columns of one part have
  // different ones.
  ImportValue plain(const ImportValue& x);
  // Returns the same value under one name, for layers that do not join their inputs.
  std::string single(const ImportValue& x);
  // Returns columns [first, first + width).
  ImportValue columns(const ImportValue& x, int64_t first, int64_t width);

  // Returns the layer that makes a value; nullptr: it is an input of the model.
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

// Returns a valid name for layers and heads: letters, digits, "_" and "-".
std::string layer_name_of(const std::string& text);

// Keeps only the layers that heads need. kUnimplemented: one of them is only a step of a formula, so its operator is
// unknown.
void drop_unused_layers(std::vector<ImportedLayer>& layers, const std::vector<ImportedHead>& heads,
                        const std::string& file);
// Joins linear layers and activations that follow each other into an mlp. `taken`: names that it may not have.
void merge_into_mlps(std::vector<ImportedLayer>& layers, std::vector<ImportedHead>& heads,
                     const std::set<std::string>& taken);

}  // namespace tessera::cli
