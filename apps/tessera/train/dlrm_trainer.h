// A DLRM over sharded tables and what trains it: one step from batch to updated parameters, on every rank.
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
#include "train/device_batch.h"

namespace tessera::cli {

struct DlrmTrainerOptions {
  std::vector<EmbeddingBagConfig> tables;  // pooled, all of one dimension
  DlrmOptions dlrm;                        // num_embeddings and stream are filled in
  DenseOptimizerSpec dense_optimizer;
  DistributedModelParallelOptions parallel;
};

// Where the time of a step goes, in seconds on this rank.
using Stages = std::vector<std::pair<std::string, double>>;
inline constexpr const char* kRouteStage = "route";
inline constexpr const char* kExchangeIdsStage = "exchange ids";

class DlrmTrainer {
 public:
  // Collective.
  DlrmTrainer(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, DlrmTrainerOptions options);

  // Forward, backward, updates. The loss is the mean over the global batch, whatever the ranks' shares of it. `taken`:
  // what ShardedInputs has made of the batch, where it has. With the dense part on a device, once warm it waits for
  // that only where a transport of host memory has to send something. True: some rank has said `finished` with this
  // batch, here or to ShardedInputs. kFailedPrecondition: in host memory, a loss that is infinite or no number, before
  // anything is updated, or a gradient, before dense parameters are; says which table or parameter brought it about, as
  // far as that can be seen. Collective.
  bool step(const Batch& batch, StepHandle taken = {}, bool finished = false);
  // The sums of this rank's losses, one for each step since the last call, from the device where they are there: waits.
  // Those from a device may be infinite or no numbers.
  std::vector<double> take_losses();
  // Whether the dense part is where the tables are (Dlrm::trains_on), and not in host memory.
  bool dense_on_device() const { return stream_ != nullptr; }
  // Logits [B, 1] of this rank's batch, in host memory. Collective.
  Tensor predict(const Batch& batch);

  DistributedModelParallel& parallel() { return *parallel_; }
  ShardedEmbeddingBagCollection& embeddings() { return parallel_->bags(Dlrm::kCollectionPath); }
  Dlrm& dlrm() { return dlrm_; }
  KeyedOptimizer& dense_optimizer() { return *optimizer_; }

  // Since construction or the last reset, in the order of a step.
  Stages stages();
  void reset_stages();
  // Spans of a step's stages from now on; nullptr: none.
  void set_trace(Trace* trace);

 private:
  const ProcessGroup& group() const { return parallel_->group(); }
  // Forward and backward of the dense part; returns the gradient of `pooled`.
  Tensor train_dense(const Batch& batch, const Tensor& pooled);
  Tensor train_dense_on_device(const Batch& batch, const Tensor& pooled);
  Tensor next_loss();  // on the device, of this step
  [[noreturn]] void refuse_loss(double loss, const Batch& batch, const Tensor& pooled);
  void check_gradients();

  DeviceStreamPtr stream_;  // of the dense part; null: host memory
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

}  // namespace tessera::cli
