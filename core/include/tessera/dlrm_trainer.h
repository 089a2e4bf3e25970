// tessera/dlrm_trainer.h - a DLRM over sharded tables and what trains it: one step from batch to updated parameters, on
// every rank.
//
//   DlrmTrainer trainer(runtime, group, {.tables = tables, .dlrm = {...}, .dense_optimizer = {"adam", "{}"}});
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
#include "tessera/dlrm.h"
#include "tessera/trainer.h"

namespace tessera {

class DeviceBatch;

struct DlrmTrainerOptions {
  std::vector<EmbeddingBagConfig> tables;  // pooled, all of one dimension
  DlrmOptions dlrm;                        // num_embeddings and stream are filled in
  DenseOptimizerSpec dense_optimizer;
  DistributedModelParallelOptions parallel;
};

class DlrmTrainer : public Trainer {
 public:
  // Collective. kInvalidArgument: a table whose dimension is not the model's.
  DlrmTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, DlrmTrainerOptions options);
  ~DlrmTrainer() override;

  // The loss is the mean binary cross-entropy over the global batch. With the dense part on a device, once warm it
  // waits for that only where a transport of host memory has to send something. kFailedPrecondition: in host memory, a
  // loss that is infinite or no number, before anything is updated, or a gradient, before dense parameters are; says
  // which table or parameter brought it about, as far as that can be seen.
  bool step(const Batch& batch, StepHandle taken, bool finished) override;
  using Trainer::step;
  // From the device where they are there: those may be infinite or no numbers.
  std::vector<double> take_losses() override;
  // Whether the dense part is where the tables are (Dlrm::trains_on), and not in host memory.
  bool dense_on_device() const { return stream_ != nullptr; }
  Tensor predict(const Batch& batch) override;

  DistributedModelParallel& parallel() { return *parallel_; }
  const ProcessGroup& group() const override { return parallel_->group(); }
  ShardedEmbeddingBagCollection& embeddings() override { return parallel_->bags(Dlrm::kCollectionPath); }
  Dlrm& dlrm() { return dlrm_; }
  KeyedOptimizer& dense_optimizer() { return *optimizer_; }

  // Since construction or the last reset. The first two are what TrainPipeline does ahead of a step.
  static constexpr const char* kRouteStage = "route";
  static constexpr const char* kExchangeIdsStage = "exchange ids";
  Stages stages();
  void reset_stages();
  void synchronize() override;
  void set_trace(Trace* trace) override;

 private:
  // Forward and backward of the dense part; returns the gradient of `pooled`.
  Tensor train_dense(const Batch& batch, const Tensor& pooled);
  Tensor train_dense_on_device(const Batch& batch, const Tensor& pooled);
  Tensor next_loss();  // on the device, of this step
  [[noreturn]] void refuse_loss(double loss, const Batch& batch, const Tensor& pooled);
  void check_gradients();

  DeviceStreamPtr tables_stream_, stream_;  // of the tables, of the dense part; null: host memory
  std::shared_ptr<DenseStep> dense_step_;
  Dlrm dlrm_;
  std::unique_ptr<DistributedModelParallel> parallel_;
  KeyedOptimizerPtr optimizer_;
  ParameterList biases_;
  Tensor grad_logits_;
  std::unique_ptr<DeviceBatch> inputs_;
  Tensor device_losses_;        // float64, of the steps whose losses are still there
  int64_t on_device_ = 0;       // how many these are
  std::vector<double> losses_;  // those before
  Trace* trace_ = nullptr;
  double dense_forward_ = 0, dense_backward_ = 0, dense_reduce_ = 0, dense_update_ = 0;
};

}  // namespace tessera
