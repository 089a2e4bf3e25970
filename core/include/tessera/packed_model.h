// tessera/packed_model.h - models that answer: float ones as checkpoints hold them, and packed ones, which are one
// directory whose tables are mapped into memory. Format: docs/models.md.
//
//   FloatModel trained = open_float_model("checkpoint");
//   pack_model(trained.model, "model", {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kInt4}}});
//   auto predictor = make_predictor(runtime, open_packed_model("model"));
//
// Opening reads no rows, whatever the size of the tables: files are mapped, and processes on one host share their
// pages. Files must stay as they are while a model is in use; a packed model is never changed in place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/dlrm.h"
#include "tessera/predictor.h"
#include "tessera/quantized_table.h"

namespace tessera {

// A model with its numbers, most of which are mapped files.
struct InferenceModel {
  ModelDescription description;
  DlrmOptions dlrm;                    // where the description's type is "dlrm"
  ModelGraph graph;                    // of its layers
  std::vector<QuantizedTable> tables;  // as description.tables
  // Parameters, float32, with TorchRec's names in a DLRM: "dense_arch.model._mlp.0._linear.weight". Buffers, also
  // int64.
  std::map<std::string, Tensor> dense;
};

struct FloatModelOptions {
  // Features and pooling, which no tensor tells. Empty: what `tessera train` wrote beside the tensors, or else one
  // feature of each table's own name, pooled by sum. Otherwise exactly the checkpoint's tables, by name; sizes that are
  // not 0 must be those stored.
  std::vector<EmbeddingBagConfig> tables;
  std::optional<BoundsCheckMode> bounds_check;  // unset: as in training, or else kFatal
  bool is_weighted = false;
  // A description of a model that `tessera train` has not written: dense_width, layers and heads. Its layers are not
  // made: which parameters they have is not looked at. Unset: a DLRM.
  std::optional<ModelGraph> graph = {};
};

struct FloatModel {
  InferenceModel model;                  // rows of kFloat32 or kFloat16
  std::vector<std::string> assumptions;  // sentences: what neither the checkpoint nor the options said
};

// `path`: a checkpoint of `tessera train`; a safetensors file; a directory with model.safetensors, or with
// model.safetensors.index.json (Hugging Face's index: {"weight_map": {tensor: file}}). Tensors have the names of a
// TorchRec DLRM's state dict, whatever stands before "sparse_arch.", "dense_arch." and "over_arch."; sizes of layers
// come from their shapes; a checkpoint of `tessera train` also says what graph its layers are. With options.graph they
// have those of its layers (LayerSpec::names), behind whatever stands before "sparse_arch.". kNotFound: nothing
// there. kDataLoss: damaged, the file is named. kInvalidArgument names the tensor that is missing, or that has another
// type or shape, or the table that is not in both checkpoint and options.
FloatModel open_float_model(const std::string& path, const FloatModelOptions& options = {});

struct PackOptions {
  RowFormat format = RowFormat::kInt8;
  std::map<std::string, RowFormat> formats;  // of tables that differ
  std::string name;                          // of the model; empty: the directory's
};

// The effect of packing on one table. Errors are absolute differences to the float values.
struct TableReport {
  std::string table;
  RowFormat format = RowFormat::kInt8;
  int64_t bytes_before = 0, bytes_after = 0;
  double worst_error = 0, mean_error = 0;
};

// Writes DIRECTORY.packing, syncs it and renames it: `directory` is a whole model or is not there, whatever interrupts.
// `model` has rows of floats. kAlreadyExists: something is there already. kNotFound: a table of `formats` that the
// model has not. kInvalidArgument: a row with NaN or infinity, or too large for its format, by table and row number; a
// dim that a format cannot have. kUnimplemented: a table with a remapping of ids. kResourceExhausted, kUnavailable name
// the path.
std::vector<TableReport> pack_model(const InferenceModel& model, const std::string& directory,
                                    const PackOptions& options);

// kNotFound: nothing there. kDataLoss: damaged or truncated, the file is named: sizes, headers and small files are
// compared, rows are not read. kUnimplemented: of a newer format.
InferenceModel open_packed_model(const std::string& directory);

// Reads every byte and compares all checksums; what open_packed_model() says, and kDataLoss.
void verify_packed_model(const std::string& directory);

std::unique_ptr<Predictor> make_predictor(const Runtime& runtime, InferenceModel model,
                                          const PredictorOptions& options = {});

}  // namespace tessera
