// tessera/model_trainer.h - a graph of layers over sharded tables and what trains it: one step from batch to updated
// parameters, on every rank.
//
//   ModelTrainer trainer(runtime, group, {.tables = tables,
//                                         .graph = dlrm_graph({.dense_inputs = 13, ...}, tables),  // tessera/dlrm.h
//                                         .dense_optimizer = {"adam", "{}"}});
//   trainer.step(batch);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/layer_graph.h"
#include "tessera/trainer.h"

namespace tessera {

class DeviceBatch;
class HeadLosses;
class IdInputs;
class SequenceInputs;

struct ModelTrainerOptions {
  std::vector<EmbeddingBagConfig> tables;  // of pooling kNone: sequences
  bool is_weighted = false;                // batches have weights, which scale pooled rows: those tables must be sums
  ModelGraph graph;                        // over these tables: graph_over(), dlrm_graph()
  std::vector<std::string> labels;         // of batches, which heads name; empty: one, which every head takes
  DenseOptimizerSpec dense_optimizer;      // of layers that say none of their own
  double dense_max_gradient_norm = 0;      // GradientClippingOptimizer's, of the sums over ranks; 0: none
  DistributedModelParallelOptions parallel;
  uint64_t seed = 0;  // of the dense part
};

class ModelTrainer : public Trainer {
 public:
  // Collective. kInvalidArgument: what LayerGraph says of the model; a head whose input its loss does not take.
  // kNotFound: no plugin computes a loss. Steps and predictions are kInvalidArgument for a sample that has not one id
  // of a feature whose ids are taken (ModelGraph::ids, HeadSpec::groups).
  ModelTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, ModelTrainerOptions options);
  ~ModelTrainer() override;

  // The loss is the mean over the global batch of the heads' losses times their weights. With the dense part on a
  // device, once warm it waits for that only where a transport of host memory has to send something.
  // kFailedPrecondition: in host memory, a loss that is infinite or no number, before anything is updated, or a
  // gradient, before dense parameters are; says which table or parameter brought it about, as far as that can be seen.
  bool step(const Batch& batch, StepHandle taken, bool finished) override;
  using Trainer::step;
  // From the device where they are there: those may be infinite or no numbers.
  std::vector<double> take_losses() override;
  // True if the dense part is on the tables' device, and not in host memory.
  bool dense_on_device() const { return stream_ != nullptr; }
  // Why it is not though those are on a device, a clause that names what is in the way
  // (LayerGraph::cannot_train_on(); a head but one of kOwnLoss): ""; or there is no device.
  const std::string& why_in_host_memory() const { return in_host_memory_; }
  // The loss of each head that takes one value a sample.
  std::vector<Prediction> predictions() const override;
  std::vector<Tensor> predict(const Batch& batch) override;

  DistributedModelParallel& parallel() { return *parallel_; }
  const ProcessGroup& group() const override { return parallel_->group(); }
  ShardedEmbeddingBagCollection& embeddings() override { return parallel_->bags(kCollectionPath); }
  // Both collections of tables, or the one that there is.
  std::vector<ShardedEmbeddings*> tables();
  ExchangeBytes<int64_t> bytes_sent();  // of both
  const LayerGraph& layers() const { return layers_; }
  const ModelGraph& graph() const { return graph_; }
  KeyedOptimizer& dense_optimizer() { return *optimizer_; }
  // From now on the learning rates of all dense parameters are those of the options times `factor`.
  void scale_dense_learning_rates(double factor);

  // Since construction or the last reset. The first two are what TrainPipeline does ahead of a step.
  static constexpr const char* kRouteStage = "route";
  static constexpr const char* kExchangeIdsStage = "exchange ids";
  Stages stages();
  void reset_stages();
  void synchronize() override;
  void set_trace(Trace* trace) override;
  void observe(const Observer& observer) override { observer_ = observer; }

 private:
  // The rows of tables that are not pooled, as the graph takes them.
  const std::vector<DenseInput>& look_up_sequences(const Batch& batch, bool finished, bool train);
  void update_sequences(bool trained);
  // Those of what heads take that are predictions.
  std::vector<Tensor> predicted(const std::vector<Tensor>& of_heads) const;
  // Forward and backward of the dense part; returns the gradient of `pooled`.
  Tensor train_dense(const Batch& batch, const Tensor& pooled, const std::vector<DenseInput>& sequences);
  Tensor train_dense_on_device(const Batch& batch, const Tensor& pooled);
  Tensor next_loss();  // on the device, of this step
  [[noreturn]] void refuse_loss(double loss, const Batch& batch, const Tensor& pooled);
  std::string broken_sequence() const;
  std::string feature_at(int64_t column);  // of the pooled output
  void check_gradients();

  ModelGraph graph_;
  DeviceStreamPtr tables_stream_;  // null: host memory
  std::string in_host_memory_;     // why_in_host_memory()
  DeviceStreamPtr stream_;         // of the dense part
  std::shared_ptr<DenseStep> dense_step_;
  LayerGraph layers_;
  std::unique_ptr<DistributedModelParallel> parallel_;
  ShardedEmbeddingCollection* sequences_ = nullptr;  // of parallel_; null: all tables are pooled
  ShardedEmbeddingCollection::Output rows_;          // theirs, of the step
  std::unique_ptr<SequenceInputs> row_inputs_;
  std::unique_ptr<IdInputs> ids_;  // that layers take
  KeyedOptimizerPtr optimizer_;
  std::vector<double> dense_rates_;  // by its groups: as the options say
  ParameterList biases_;
  std::unique_ptr<HeadLosses> losses_of_heads_;
  std::unique_ptr<DeviceBatch> inputs_;
  Tensor device_losses_;        // float64, of the steps whose losses are still there
  int64_t on_device_ = 0;       // how many these are
  std::vector<double> losses_;  // those before
  Trace* trace_ = nullptr;
  Observer observer_;
  double dense_forward_ = 0, dense_backward_ = 0, dense_reduce_ = 0, dense_update_ = 0;
};

}  // namespace tessera
