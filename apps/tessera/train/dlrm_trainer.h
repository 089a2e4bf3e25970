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

namespace tessera::cli {

struct DlrmTrainerOptions {
  std::vector<EmbeddingBagConfig> tables;  // pooled, all of one dimension
  DlrmOptions dlrm;                        // num_embeddings is filled in
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

  // Forward, backward, updates. The loss is the mean over the global batch, whatever the ranks' shares of it. Returns
  // the sum of this rank's losses. `taken`: what ShardedInputs has made of the batch, where it has. Collective.
  double step(const Batch& batch, StepHandle taken = {});
  // Logits [B, 1] of this rank's batch. Collective.
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
  // The dense part is computed in host memory.
  Tensor in_host_memory(const Tensor& pooled) const {
    return pooled.stream() ? pooled.stream()->to_host(pooled) : pooled;
  }

  Dlrm dlrm_;
  std::unique_ptr<DistributedModelParallel> parallel_;
  KeyedOptimizerPtr optimizer_;
  Tensor grad_logits_;
  Trace* trace_ = nullptr;
  double dense_forward_ = 0, dense_backward_ = 0, dense_reduce_ = 0, dense_update_ = 0;
};

}  // namespace tessera::cli
