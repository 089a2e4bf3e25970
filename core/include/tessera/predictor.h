// tessera/predictor.h - a packed model that answers: what it takes, what it gives, and predictions from any thread.
//
//   auto predictor = open_predictor(runtime, "model");
//   predictor->predict(input, scores);   // scores [batch]: the first output
//
// Inputs are borrowed arrays, so that a server or a C program hands its own buffers over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/process_group.h"
#include "tessera/quantized_table.h"
#include "tessera/runtime.h"
#include "tessera/sharding_plan.h"

namespace tessera {

struct InferenceModel;  // packed_model.h
namespace inference {
struct PredictorCounts;
}

// The description of a packed model.
struct ModelFeature {
  std::string name;
  int64_t ids = 0;  // valid ones are [0, ids): the fewest of the tables that look it up
  std::vector<std::string> tables;
};
struct ModelTable {
  std::string name;
  int64_t rows = 0, dim = 0;
  RowFormat format = RowFormat::kInt8;
  PoolingType pooling = PoolingType::kSum;
  std::vector<std::string> features;
  int64_t bytes = 0;        // as stored
  int64_t ids = 0;          // valid ones are [0, ids)
  int64_t index_bytes = 0;  // of ids to rows; 0: an id is its row
};
struct ModelOutput {  // what a head gives
  std::string name;
  int64_t width = 1;  // values of a sample
  bool probability =
      true;  // in (0, 1): the sigmoid of a head that learnt by the core's own loss; false: as the head has it
  std::string label = "label";  // of the data that it was trained on, which it predicts
};
struct ModelDescription {
  std::string name;     // as it was packed
  std::string version;  // 16 hexadecimal digits of its contents
  std::string type;     // "dlrm", "graph"
  int64_t dense_inputs = 0;
  bool is_weighted = false;  // features may have weights, one per id; 1 where a request brings none
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
  std::vector<ModelFeature> features;  // in the order of PredictInput::features
  std::vector<ModelTable> tables;
  std::vector<ModelOutput> outputs;  // in the order of the heads; of a Predictor, at least one
  std::string encoding;              // Dataset::encoding of what it was trained on; empty: none
};

// `batch` samples, borrowed for the call.
struct PredictInput {
  struct Feature {
    std::span<const int64_t> values;   // ids of all samples, one after the other
    std::span<const int32_t> lengths;  // [batch], sum = values.size()
    std::span<const float> weights;    // as values; empty: all 1
  };
  int64_t batch = 0;
  std::span<const float> dense;       // [batch, dense_inputs]
  std::span<const Feature> features;  // as ModelDescription::features
};

struct PredictorStats {
  uint64_t predictions = 0;       // calls that succeeded
  uint64_t samples = 0;           // of these
  std::vector<uint64_t> bad_ids;  // by table, as ModelDescription::tables
};

class Predictor {
 public:
  virtual ~Predictor() = default;

  virtual const ModelDescription& model() const = 0;
  // [any-thread] Why `input` cannot be predicted, as a sentence that names the feature, the sample and the bound;
  // empty: nothing. Predictions make the same checks. With bounds_check other than kFatal, ids out of range are no
  // reason.
  virtual std::string why_not(const PredictInput& input) const = 0;
  // [any-thread] outputs[i]: batch * width values of output i, sample by sample; those behind the last of `outputs`,
  // and those whose span is empty, are not wanted. Allocates nothing once as many threads have called it with as large
  // a batch. kInvalidArgument, kOutOfRange: why_not(); kUnavailable: a rank of a sharded model is lost.
  virtual void predict_outputs(const PredictInput& input, std::span<const std::span<float>> outputs) = 0;
  // The first output alone. kInvalidArgument: it has more than one value a sample.
  void predict(const PredictInput& input, std::span<float> scores) {
    if (const ModelOutput& first = model().outputs.front(); first.width != 1)
      fail(Code::kInvalidArgument, "the model's first head \"", first.name, "\" gives ", first.width,
           " values a sample, which are no score");
    predict_outputs(input, {&scores, 1});
  }
  virtual PredictorStats stats() const = 0;
  // [any-thread] False: predict() fails from now on, because a rank is lost; the model has to be opened anew.
  virtual bool usable() const { return true; }
};

struct PredictorOptions {
  std::string kernel = "auto";  // kernel plugin that serves "quant"
};

// Maps the tables of a packed model (docs/models.md): processes on a host share them. kNotFound: nothing there;
// kDataLoss: damaged or truncated, the file is named; kUnimplemented: of a newer format.
std::unique_ptr<Predictor> open_predictor(const Runtime& runtime, const std::string& directory,
                                          const PredictorOptions& options = {});

// For programs: a page of a mapped model that cannot be read (an I/O error, the file was made shorter) is not the
// process's end by SIGBUS any more, but of all predictors that open_predictor() has given so far: they are kUnavailable
// and not usable() from then on. Takes the signal over for addresses inside mapped models; call it once, before other
// threads. Sharded models keep SIGBUS.
void survive_lost_pages();

// Work of every rank on the values of a prediction, such as a search among items that are spread over the ranks.
class RankPart {
 public:
  virtual ~RankPart() = default;
  virtual int64_t answer_bytes() const = 0;  // of a sample; equal on all ranks
  // Called by one thread at a time. `values`: of one output of the model, [batch, width]; fills answer[batch *
  // answer_bytes()].
  virtual void answer(std::span<const float> values, int64_t batch, std::span<std::byte> answer) = 0;
};

// A model whose tables are spread over the ranks of a group. Rank 0 predicts; the others look up for it.
class ShardedPredictor : public Predictor {
 public:
  // Ranks other than 0: answers rank 0 until its predictor goes, then returns. kUnavailable: a rank is lost; a new
  // group and a new predictor are needed then.
  virtual void serve_shard() = 0;
  virtual const EmbeddingModuleShardingPlan& plan() const = 0;
  // [any-thread] Rank 0, of a model with options.part: predicts, and gives the values of output `output`, `values`
  // [batch, width], to every rank's part. Their answers, by rank: answers[world_size * batch * answer_bytes()]. Errors
  // of predict_outputs().
  virtual void predict_with_parts(const PredictInput& input, size_t output, std::span<float> values,
                                  std::span<std::byte> answers) = 0;
};

struct ShardedPredictorOptions {
  std::string kernel = "auto";
  // The plan that says on which rank every table lives, for the group's world size; the compute kernel that it says
  // does not matter. Unset: one is made by the planner.
  std::optional<EmbeddingModuleShardingPlan> plan = std::nullopt;
  // While nobody predicts, rank 0 lets the others hear of it at least this often; well below the group's timeout.
  double keep_alive_s = 2;
  // Every rank's own part in predictions, made of the model, whose description has its outputs; what it throws is
  // thrown on all ranks. Set on all or on none.
  std::function<std::unique_ptr<RankPart>(const InferenceModel& model, int rank, int world_size)> part = nullptr;
  // Counters that versions of one model share as they follow each other; unset: the predictor's own.
  std::shared_ptr<inference::PredictorCounts> counts = nullptr;
};

// Collective: all ranks of `group` open the same model, kFailedPrecondition otherwise. Each rank maps the files and
// touches its own shards alone. On rank 0 predict() may be called by any
// thread, one batch travels at a time; a rank that is lost is kUnavailable within the group's timeout, also when nobody
// predicts, and from then on. Errors of opening are those of open_predictor(), on every rank. `group` is the
// predictor's alone while it lives.
std::unique_ptr<ShardedPredictor> open_sharded_predictor(const Runtime& runtime, const std::string& directory,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const ShardedPredictorOptions& options = {});
// The same of what `open` gives on each rank; what that throws is thrown on all.
std::unique_ptr<ShardedPredictor> make_sharded_predictor(const Runtime& runtime,
                                                         const std::function<InferenceModel()>& open,
                                                         std::shared_ptr<ProcessGroup> group,
                                                         const ShardedPredictorOptions& options = {});

}  // namespace tessera
