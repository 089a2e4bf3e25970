// DLRMs over tables that are all alike, with batches drawn from a distribution: what the cost model is calibrated and
// measured with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/dlrm.h"
#include "tessera/machine.h"
#include "tessera/model_trainer.h"
#include "tessera/planner.h"
#include "tessera/step_model.h"

namespace tessera {

struct SyntheticModel {
  int64_t tables, rows, dim;
  int64_t batch;                       // per rank
  int64_t pooling;                     // ids of every bag
  double zipf = 0;                     // 0: uniform
  std::vector<int64_t> hidden = {64};  // layers of the bottom MLP before the last, and of the top MLP
};

// A model with what the planner and predict_step are told about it.
class SyntheticStep {
 public:
  SyntheticStep(SyntheticModel model, int ranks, const Machine& machine);

  const SyntheticModel& model() const { return model_; }
  const PlannerModule& module() const { return module_; }
  const PlannerOptions& planner() const { return planner_; }
  DenseWork dense() const;
  ShardingPlan plan_of(EmbeddingModuleShardingPlan tables) const;
  StepPrediction predicted(const Runtime& runtime, const ShardingPlan& plan) const;
  // `count` batches of one rank. Popular rows are scattered over the table.
  std::vector<Batch> batches(int rank, int count) const;
  // Collective over the group. `kernel`: plugin's id, or "auto".
  std::unique_ptr<ModelTrainer> trainer(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                                        const std::string& kernel, ShardingPlan plan) const;

 private:
  DlrmOptions dlrm() const;

  SyntheticModel model_;
  PlannerModule module_;
  PlannerOptions planner_;
};

}  // namespace tessera
