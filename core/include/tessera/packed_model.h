// tessera/packed_model.h - models for inference: float models from checkpoints, and packed models. A packed model is a
// directory whose tables are mapped into memory. docs/models.md describes the format.
//
//   FloatModel trained = open_float_model("checkpoint");
//   pack_model(trained.model, "model", {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kInt4}}});
//   auto predictor = make_predictor(runtime, open_packed_model("model"));
//
// Opening reads no rows, whatever the size of the tables: files are mapped, and processes on one host share their
// pages. Files must not change while a model is in use. A packed model is never changed in place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/predictor.h"
#include "tessera/quantization.h"

namespace tessera {

// A model with its values, most of which are in mapped files.
struct InferenceModel {
  ModelDescription description;
  DlrmOptions dlrm;                    // used if the description's type is "dlrm"
  ModelGraph graph;                    // of its layers
  std::vector<QuantizedTable> tables;  // in the order of description.tables
  // Parameters (float32) and buffers (also int64). In a DLRM they have TorchRec's names:
  // "dense_arch.model._mlp.0._linear.weight".
  std::map<std::string, Tensor> dense;
};

struct FloatModelOptions {
  // Features and pooling, which tensors do not tell. Empty: the description of `tessera train`, or else one feature per
  // table with the table's name, pooled by sum. Otherwise exactly the checkpoint's tables, by name; sizes other than 0
  // must match the stored ones.
  std::vector<EmbeddingBagConfig> tables;
  std::optional<BoundsCheckMode> bounds_check;  // unset: as in training, or else kFatal
  bool is_weighted = false;
  // Describes a model that `tessera train` has not written: dense_width, layers and heads. Its layers are not made, so
  // their parameters are not checked. Unset: a DLRM.
  std::optional<ModelGraph> graph = {};
};

struct FloatModel {
  InferenceModel model;                  // with rows of kFloat32 or kFloat16
  std::vector<std::string> assumptions;  // sentences about what neither the checkpoint nor the options said
};

// Opens a checkpoint of `tessera train`, a safetensors file, or a directory with model.safetensors or with
// model.safetensors.index.json (Hugging Face's index: {"weight_map": {tensor: file}}).
//
// Tensors have the names of a TorchRec DLRM's state dict, with any prefix before "sparse_arch.", "dense_arch." and
// "over_arch.". Sizes of layers come from their shapes. A checkpoint of `tessera train` also describes its graph. With
// options.graph, tensors have the names of its layers (LayerSpec::names), after the prefix before "sparse_arch.".
//
// kNotFound: there is nothing. kDataLoss: it is damaged; the error names the file. kInvalidArgument: a tensor is
// missing or has another type or shape, or a table is not in both checkpoint and options; the error names it.
FloatModel open_float_model(const std::string& path, const FloatModelOptions& options = {});

struct PackOptions {
  RowFormat format = RowFormat::kInt8;
  std::map<std::string, RowFormat> formats;  // of tables that differ
  std::string name;                          // of the model; empty: the directory's
};

// How packing affected one table. Errors are absolute differences to the float values.
struct TableReport {
  std::string table;
  RowFormat format = RowFormat::kInt8;
  int64_t bytes_before = 0, bytes_after = 0;
  double worst_error = 0, mean_error = 0;
};

// Writes DIRECTORY.packing, syncs it and renames it, so `directory` is a complete model or does not exist, even after
// an interruption. `model` must have float rows. kAlreadyExists: something is there already. kNotFound: `formats` names
// a table that the model does not have. kInvalidArgument: a row has NaN or infinity or is too large for its format
// (with table and row number), or a format cannot have the dim. kUnimplemented: a table has a remapping of ids.
// kResourceExhausted, kUnavailable: the error names the path.
std::vector<TableReport> pack_model(const InferenceModel& model, const std::string& directory,
                                    const PackOptions& options);

// Compares sizes, headers and small files; rows are not read. kNotFound: there is nothing. kDataLoss: it is damaged or
// truncated; the error names the file. kUnimplemented: it has a newer format.
InferenceModel open_packed_model(const std::string& directory);

// Reads every byte and compares all checksums. Throws the errors of open_packed_model(), and kDataLoss.
void verify_packed_model(const std::string& directory);

std::unique_ptr<Predictor> make_predictor(const Runtime& runtime, InferenceModel model,
                                          const PredictorOptions& options = {});

}  // namespace tessera
