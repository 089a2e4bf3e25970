// tessera/predictor.h - models for inference: predictions from any thread, descriptions of inputs and outputs, and
// packed models, which are directories whose tables are mapped into memory (docs/models.md).
//
//   auto predictor = open_predictor(runtime, "model");
//   predictor->predict(input, scores);   // scores [batch]: the first output
//
// Inputs of predictions are borrowed arrays, so a server or a C program can pass its own buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/process_group.h"
#include "tessera/quantization.h"
#include "tessera/runtime.h"
#include "tessera/sharding.h"

namespace tessera {

class Batch;
struct DataColumn;
struct Dataset;
struct InferenceModel;
struct Samples;
namespace inference {
struct PredictorCounts;
}

// The description of a packed model.
struct ModelFeature {
  std::string name;
  int64_t ids = 0;  // valid ids are [0, ids): the smallest bound of the tables that use it
  std::vector<std::string> tables;
  bool needed = true;  // false: no output of this predictor depends on it, so requests may leave it out
};
struct ModelTable {
  std::string name;
  int64_t rows = 0, dim = 0;
  RowFormat format = RowFormat::kInt8;
  PoolingType pooling = PoolingType::kSum;
  std::vector<std::string> features;
  int64_t bytes = 0;        // as stored
  int64_t ids = 0;          // valid ids are [0, ids)
  int64_t index_bytes = 0;  // size of the map from ids to rows; 0: an id is its row
};
struct ModelOutput {  // an output of a head
  std::string name;
  int64_t width = 1;  // values per sample
  // True: in (0, 1), the sigmoid of a head that was trained with the core's own loss. False: the head's value.
  bool probability = true;
  std::string label = "label";  // label of the training data that it predicts
  std::string where = {};       // HeadSpec::where
  bool classes = false;         // true: the values are logits of classes, and the label is the number of one
};
struct ModelDescription {
  std::string name;     // given when it was packed
  std::string version;  // 16 hexadecimal digits of its contents
  std::string type;     // "dlrm", "graph"
  int64_t dense_inputs = 0;
  bool is_weighted = false;  // features may have weights, one per id; 1 if a request has none
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  std::vector<ModelFeature> features;  // in the order of PredictInput::features
  std::vector<ModelTable> tables;
  std::vector<ModelOutput> outputs;  // in the order of the heads; a Predictor has at least one
  std::string encoding;              // Dataset::encoding of the training data; empty: none
  std::string trained_on;            // what tells its test part from the training rows, as JSON; empty: unknown
  // The precision of a Predictor's dense layers: "float32", "bfloat16" or "int8".
  std::string dense_precision = "float32";
  std::string why_float32 = {};  // why "auto" did not take bfloat16; empty: it was not asked for, or did
};

// `batch` samples, borrowed during the call.
struct PredictInput {
  struct Feature {
    std::span<const int64_t> values;   // ids of all samples, one after the other
    std::span<const int32_t> lengths;  // [batch], sum = values.size()
    std::span<const float> weights;    // like values; empty: all 1
  };
  int64_t batch = 0;
  std::span<const float> dense;       // [batch, dense_inputs]
  std::span<const Feature> features;  // in the order of ModelDescription::features
};

struct PredictorStats {
  uint64_t predictions = 0;       // successful calls
  uint64_t samples = 0;           // in these calls
  std::vector<uint64_t> bad_ids;  // in the order of ModelDescription::tables
};

class Predictor {
 public:
  virtual ~Predictor() = default;

  virtual const ModelDescription& model() const = 0;
  // [any-thread] A sentence about why `input` cannot be predicted, naming the feature, the sample and the bound; empty:
  // it can. Predictions make the same checks. Ids out of range only count if bounds_check is kFatal.
  virtual std::string why_not(const PredictInput& input) const = 0;
  // [any-thread] outputs[i] gets batch * width values of output i, sample by sample. Outputs with an empty span, or
  // after the last of `outputs`, are left out. Allocates nothing once as many threads have called it with as large a
  // batch. kInvalidArgument, kOutOfRange: why_not(). kUnavailable: a rank of a sharded model is lost.
  virtual void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) = 0;
  // Returns only the first output. kInvalidArgument: it has more than one value per sample.
  void predict(const PredictInput& input, std::span<float> scores) {
    if (const ModelOutput& first = model().outputs.front(); first.width != 1)
      fail(Code::kInvalidArgument, "the model's first head \"", first.name, "\" gives ", first.width,
           " values a sample, which are no score");
    predict_outputs(input, {&scores, 1});
  }
  virtual PredictorStats stats() const = 0;
  // [any-thread] False: predict() now always fails, because a rank is lost, and the model must be opened again.
  virtual bool usable() const { return true; }
};

struct PredictorOptions {
  std::string kernel = "auto";  // kernel plugin for "quant"
  // The precision of the dense layers. Empty: "int8" if the model was packed so, otherwise "float32". "bfloat16" and
  // "auto" are those of choose_precision(), whose errors are those of opening. A model in int8 takes only "int8" and
  // "auto".
  std::string dense_precision = {};
};

// Maps the tables of a packed model (docs/models.md); processes on a host share them. kNotFound: there is nothing.
// kDataLoss: it is damaged or truncated; the error names the file. kUnimplemented: it has a newer format.
std::unique_ptr<Predictor> open_predictor(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options = {});

// Handles I/O errors on mapped models (also a file that was truncated). Without this call, SIGBUS ends the process.
// With it, all predictors opened so far by open_predictor() become kUnavailable and not usable(). It handles the signal
// for addresses inside mapped models; call it once, before other threads start. Sharded models keep SIGBUS.
void survive_lost_pages();

// Work that every rank does on a prediction's values, such as a search in items that are spread over the ranks.
class RankPart {
 public:
  virtual ~RankPart() = default;
  virtual int64_t answer_bytes() const = 0;  // per sample; the same on all ranks
  // Called by one thread at a time. `values`: one output of the model, [batch, width]. Fills answer[batch *
  // answer_bytes()].
  virtual void answer(std::span<const float> values, int64_t batch, std::span<std::byte> answer) = 0;
};

// A model whose tables are spread over the ranks of a group. Rank 0 predicts, and the others look up rows for it.
class ShardedPredictor : public Predictor {
 public:
  // Called on ranks other than 0. Serves rank 0 until its predictor is destroyed, then returns. kUnavailable: a rank is
  // lost, and a new group and a new predictor are needed.
  virtual void serve_shard() = 0;
  virtual const EmbeddingModuleShardingPlan& plan() const = 0;
  // [any-thread] Rank 0, with options.part: predicts, and passes the values of output `output`, `values` [batch,
  // width], to every rank's RankPart. Their answers come by rank: answers[world_size * batch * answer_bytes()]. Errors
  // are those of predict_outputs().
  virtual void predict_with_parts(const PredictInput& input, size_t output, std::span<float> values,
                                  std::span<std::byte> answers) = 0;
};

struct ShardedPredictorOptions {
  std::string kernel = "auto";
  std::string dense_precision = {};  // as PredictorOptions::dense_precision; rank 0 has the dense layers
  // Plan of the tables for the group's world size; its compute kernel is ignored. Unset: the planner makes one.
  std::optional<EmbeddingModuleShardingPlan> plan = std::nullopt;
  // While nobody predicts, rank 0 contacts the others at least this often. It must be well below the group's timeout.
  double keep_alive_s = 2;
  // Makes each rank's RankPart from the model, whose description has its outputs. An error is thrown on all ranks. Set
  // it on all ranks or on none.
  std::function<std::unique_ptr<RankPart>(const InferenceModel& model, int rank, int world_size)> part = nullptr;
  // Counters that successive versions of a model share; unset: the predictor's own.
  std::shared_ptr<inference::PredictorCounts> counts = nullptr;
};

// Collective: all ranks of `group` must open the same model, otherwise kFailedPrecondition. Each rank maps the files
// and touches only its own shards. On rank 0 any thread may call predict(), but one batch is in progress at a time. A
// lost rank makes the predictor kUnavailable for good, within the group's timeout and even while nobody predicts.
// Errors of opening are those of open_predictor(), on every rank. The predictor needs `group` exclusively while it
// lives.
std::unique_ptr<ShardedPredictor> open_sharded_predictor(const Runtime& runtime, const std::string& directory,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const ShardedPredictorOptions& options = {});
// Does the same with the model that `open` returns on each rank. If it throws on a rank, all ranks throw.
std::unique_ptr<ShardedPredictor> make_sharded_predictor(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const ShardedPredictorOptions& options = {});

// Models and their files. Opening reads no rows, whatever the size of the tables: files are mapped, and processes on
// one host share their pages. Files must not change while a model is in use. A packed model is never changed in place.
//
//   FloatModel trained = open_float_model("checkpoint");
//   pack_model(trained.model, "model", {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kInt4}}});
//   auto predictor = make_predictor(runtime, open_packed_model("model"));

// A model with its values, most of which are in mapped files.
struct InferenceModel {
  ModelDescription description;
  DlrmOptions dlrm;                    // used if the description's type is "dlrm"
  ModelGraph graph;                    // of its layers
  std::vector<QuantizedTable> tables;  // in the order of description.tables
  // Parameters (float32) and buffers (also int64). In a DLRM they have TorchRec's names:
  // "dense_arch.model._mlp.0._linear.weight".
  std::map<std::string, Tensor> dense;
  // Weights in `dense` that are stored as integers of 8 bits with a scale for each row. Empty: the dense layers are in
  // float32; otherwise they are in int8.
  std::set<std::string> int8_weights = {};
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

// How rounding to int8 affected one layer. Errors are those of the weights that were rounded.
struct DenseReport {
  std::string layer;
  bool int8 = false;  // false: it stays in float32
  int64_t bytes_before = 0, bytes_after = 0;
  double worst_error = 0, mean_error = 0;
};

// Rounds the weights of all layers that have products in int8, so that predictors of `model` compute in int8 and
// pack_model() stores integers. Returns a report for each layer with parameters. kInvalidArgument: no layer has them.
std::vector<DenseReport> round_dense_to_int8(const Runtime& runtime, InferenceModel& model);

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

// Leaves out heads with a loss whose values depend on ids that only a trainer draws (ModelGraph::drawn), and sets
// ModelFeature::needed. make_predictor() does it. kInvalidArgument: no head is left; the sentence says what such a
// model answers.
void keep_served_heads(InferenceModel& model);
// A table whose rows a trainer draws, if no head would be left; null: the model has scores.
const QuantizedTable* items_without_scores(const InferenceModel& model);

// Predictions of data that a reader gave: files that are read with the encoding looked_up_columns(model).

// The model's column encoding without the id columns that are used only to group losses. Input files may omit those.
std::string looked_up_columns(const ModelDescription& model);
// Columns that input files must have: "price", "user" and "item"; empty: the model does not say.
std::string needed_columns(const ModelDescription& model);

// Turns a reader's batch into a predictor's input: the model's features, in its order.
class BatchInput {
 public:
  // kInvalidArgument: data with these columns and dense inputs do not fit the model; the error names both.
  BatchInput(const ModelDescription& model, const std::vector<DataColumn>& columns, int64_t dense_inputs);
  // The result borrows `batch` and is valid until the next call.
  const PredictInput& from(const Batch& batch);

 private:
  static constexpr size_t kNoColumn = SIZE_MAX;  // of a feature that is not needed and not there
  std::vector<size_t> column_of_;                // by feature
  std::vector<int64_t> values_;
  std::vector<int32_t> lengths_, no_lengths_;
  std::vector<PredictInput::Feature> features_;
  PredictInput input_;
};

// Receives the model's outputs for a batch: values[o] of output o, [samples, widths[o]].
using ValuesSink = std::function<void(const std::vector<std::vector<float>>& values, const Batch& batch)>;
// Predicts all samples in order, a batch at a time. Outputs with width 0 are left out.
void predict_all(Predictor& predictor, const Dataset& data, const Samples& samples, int64_t batch,
                 const std::vector<size_t>& widths, const ValuesSink& sink);

}  // namespace tessera
