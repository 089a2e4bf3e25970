// tessera/trainer.h - trains a graph of layers over sharded tables: one step from batch to updated parameters, on every
// rank. The base class is the interface of such models to a training loop.
//
//   ModelTrainer trainer(runtime, group, {.tables = tables,
//                                         .graph = dlrm_graph({.dense_inputs = 13, ...}, tables),
//                                         .dense_optimizer = {"adam", "{}"}});
//   trainer.step(batch);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/layer_graph.h"
#include "tessera/metrics.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// Time of a step's stages, in seconds on this rank, in step order.
using Stages = std::vector<std::pair<std::string, double>>;

// The interface of a training loop to a model over sharded tables. ModelTrainer implements it. A program with its own
// model writes another one: training needs step() and take_losses(), evaluation needs predict(). Used by one thread.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Runs one step of all ranks: forward, backward, updates. Ranks may have shares of any size, even empty ones.
  // `taken`: TrainPipeline's work on the batch, if any. True: some rank has said `finished` with this batch, here or to
  // the pipeline. Collective.
  virtual bool step(const Batch& batch, TakenBatch taken, bool finished) = 0;
  bool step(const Batch& batch) { return step(batch, {}, false); }
  // The sums of this rank's losses over its samples, one per step since the last call. May wait for a device.
  virtual std::vector<double> take_losses() = 0;
  // The values that predict() gives; by default one logit of the first label.
  virtual std::vector<Prediction> predictions() const { return {{}}; }
  // Returns the values of predictions(), [B, 1] or [B, classes] each for this rank's batch, in host memory, valid until
  // the next call. Collective. kUnimplemented: not overridden.
  virtual std::vector<Tensor> predict(const Batch& batch);

  // After this, step() calls `observer` for each batch that has samples here, with the values that predict() would give
  // before the step. Null: stops that. kUnimplemented: not overridden.
  using Observer = std::function<void(const std::vector<Tensor>& scores, const Batch& batch)>;
  virtual void observe(const Observer& observer);

  virtual const ProcessGroup& group() const = 0;
  // The tables whose ids a pipeline exchanges ahead of the step.
  virtual ShardedEmbeddingBagCollection& embeddings() = 0;
  // Further tables whose ids a pipeline exchanges ahead of the step; null: there are none, or only the step knows which
  // ids they get.
  virtual ShardedEmbeddingCollection* sequences_ahead() { return nullptr; }
  // Waits for steps' work on a device.
  virtual void synchronize() {}
  // Records spans of a step's stages; nullptr: none.
  virtual void set_trace(Trace* trace) { embeddings().set_trace(trace); }
};

class AveragingOptimizer;
class DeviceBatch;
class DrawnIds;
class GradientSums;
class HeadLosses;
class IdInputs;
class SequenceInputs;

// A feature whose ids are drawn in each step instead of read: rows of its table that losses and ranks over items take.
// They are in the first sample of each rank, the same on all ranks, or in each sample.
struct DrawnFeature {
  enum class Draw { kAll, kUniform, kPopularity };
  enum class When { kAlways, kTraining, kEvaluation };
  std::string name;
  Draw draw = Draw::kAll;
  When when = When::kAlways;    // otherwise it has no ids
  int64_t first = 0, rows = 0;  // ids are in [first, rows)
  int64_t count = 0;            // ids of a batch or sample; unused for kAll
  bool per_sample = false;
  bool split = false;               // of kAll: each rank has other rows, blocks as of row-wise sharding
  std::vector<double> counts = {};  // for kPopularity: how often each of these ids is seen
};

struct ModelTrainerOptions {
  std::vector<EmbeddingBagConfig> tables;  // with pooling kNone: sequences
  bool is_weighted = false;                // batches have weights, which scale pooled rows; those tables must be sums
  ModelGraph graph;                        // over these tables: graph_over(), dlrm_graph()
  std::vector<DrawnFeature> drawn = {};    // features of tables without pooling
  std::vector<std::string> labels;         // of batches, named by heads; empty: one label for all heads
  DenseOptimizerSpec dense_optimizer;      // for layers without their own
  double dense_max_gradient_norm = 0;      // GradientClippingOptimizer's, for the sums over ranks; 0: none
  // Batches whose gradients make one update of the layers, as one batch of all their samples does. Tables are updated
  // after each batch. Not on devices.
  int64_t accumulate = 1;
  double dense_ema = 0;  // decay of the averages of the layers' weights that predict() uses; 0: none; not on devices
  DistributedModelParallelOptions parallel;
  uint64_t seed = 0;                                // of the dense part
  std::string dense_precision = kFloat32Precision;  // choose_precision()'s; with "auto", all ranks take the same
};

class ModelTrainer : public Trainer {
 public:
  // Collective. kInvalidArgument: LayerGraph refuses the model, or a loss does not take its head's input. kNotFound: no
  // plugin has a loss. Steps and predictions throw kInvalidArgument if a sample does not have exactly one id of a
  // feature whose ids are taken (ModelGraph::ids, HeadSpec::groups).
  ModelTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, ModelTrainerOptions options);
  ~ModelTrainer() override;

  // The loss is the mean over the global batch of the heads' weighted losses. With the dense part on a device, a warm
  // step waits for the device only if a host-memory transport must send something. kFailedPrecondition, in host memory:
  // a loss is infinite or no number, and nothing was updated; or a gradient is, and dense parameters were not updated.
  // The error names the table or parameter that caused it, if that can be seen.
  bool step(const Batch& batch, TakenBatch taken, bool finished) override;
  using Trainer::step;
  // Reads the losses from the device if they are there. On a device they may be infinite or NaN.
  std::vector<double> take_losses() override;
  // True if the dense part is on the tables' device; false: in host memory.
  bool dense_on_device() const { return stream_ != nullptr; }
  // The reason why the dense part is not on the tables' device (LayerGraph::cannot_train_on(), or a head's loss is not
  // kOwnLoss); "": it is, or there is no device.
  const std::string& why_in_host_memory() const { return in_host_memory_; }
  // The type of the dense layers' products.
  const DensePrecision& dense_precision() const { return precision_; }
  // One prediction for each head with one value per sample.
  std::vector<Prediction> predictions() const override;
  std::vector<Tensor> predict(const Batch& batch) override;

  DistributedModelParallel& parallel() { return *parallel_; }
  const ProcessGroup& group() const override { return parallel_->group(); }
  ShardedEmbeddingBagCollection& embeddings() override { return parallel_->bags(kCollectionPath); }
  // Null if ids of sequences are drawn.
  ShardedEmbeddingCollection* sequences_ahead() override { return drawn_ ? nullptr : sequences_; }
  // Both collections of tables, or the only one.
  std::vector<ShardedEmbeddings*> tables();
  ExchangeBytes<int64_t> bytes_sent();  // of both
  const LayerGraph& layers() const { return layers_; }
  const ModelGraph& graph() const { return graph_; }
  KeyedOptimizer& dense_optimizer() { return *optimizer_; }
  // Ends the work of earlier steps before the model is read: batches that wait for others make an update, and the
  // layers' parameters hold their averages, if there are any. predict() does it, too. Collective.
  void settle();
  // Sets the learning rates of all dense parameters to those of the options times `factor`.
  void scale_dense_learning_rates(double factor);

  // Time per stage since construction or the last reset. TrainPipeline does the first two stages ahead of a step.
  static constexpr const char* kRouteStage = "route";
  static constexpr const char* kExchangeIdsStage = "exchange ids";
  Stages stages();
  void reset_stages();
  void synchronize() override;
  void set_trace(Trace* trace) override;
  void observe(const Observer& observer) override { observer_ = observer; }

 private:
  // The lookups of a batch in both collections. The second one starts to send rows before the first one has received
  // all of its rows.
  struct Rows {
    ShardedEmbeddingBagCollection::Output pooled;
    const std::vector<DenseInput>& sequences;  // rows of tables without pooling, as inputs of the graph
  };
  Rows look_up(const Batch& batch, TakenBatch taken, bool finished, bool train);
  // Each does one half of the backward, for both collections.
  void send_gradients(const ShardedEmbeddingBagCollection::Output& pooled, const Tensor& grad_pooled, bool trained);
  void update_tables(const ShardedEmbeddingBagCollection::Output& pooled);
  // The heads' inputs that are predictions.
  std::vector<Tensor> predicted(const std::vector<Tensor>& of_heads) const;
  // Runs forward and backward of the dense part, and returns the gradient of `pooled`.
  Tensor train_dense(const Batch& batch, const Tensor& pooled, const std::vector<DenseInput>& sequences);
  Tensor train_dense_on_device(const Batch& batch, const Tensor& pooled);
  Tensor next_loss();  // on the device, for this step
  [[noreturn]] void refuse_loss(double loss, const Batch& batch, const Tensor& pooled);
  std::string broken_sequence() const;
  std::string feature_at(int64_t column);  // the feature of a column of the pooled output
  void check_gradients();
  void reduce_dense();  // sums gradients over ranks
  void update_dense();

  ModelGraph graph_;
  DeviceStreamPtr tables_stream_;  // null: host memory
  std::string in_host_memory_;     // why_in_host_memory()
  DeviceStreamPtr stream_;         // of the dense part
  DensePrecision precision_;
  StepInfo step_;  // set between steps
  LayerGraph layers_;
  std::unique_ptr<DistributedModelParallel> parallel_;
  ShardedEmbeddingCollection* sequences_ = nullptr;  // in parallel_; null: all tables are pooled
  ShardedEmbeddingCollection::Output rows_;          // of sequences_, in this step
  std::unique_ptr<SequenceInputs> row_inputs_;
  std::unique_ptr<IdInputs> ids_;              // for layers that take ids
  std::unique_ptr<DrawnIds> drawn_;            // null: nothing is drawn
  const KeyedJaggedTensor* sparse_ = nullptr;  // ids of the batch, with those drawn
  KeyedOptimizerPtr optimizer_;
  std::shared_ptr<AveragingOptimizer> averages_;  // part of optimizer_; null: none
  std::unique_ptr<GradientSums> sums_;            // null: each batch makes an update
  std::vector<double> dense_rates_;               // by parameter group, from the options
  ParameterList biases_;
  std::unique_ptr<HeadLosses> losses_of_heads_;
  std::unique_ptr<DeviceBatch> inputs_;
  Tensor device_losses_;        // float64, losses that are still on the device
  int64_t on_device_ = 0;       // number of these
  std::vector<double> losses_;  // earlier losses
  Trace* trace_ = nullptr;
  Observer observer_;
  double dense_forward_ = 0, dense_backward_ = 0, dense_reduce_ = 0, dense_update_ = 0;
};

}  // namespace tessera
