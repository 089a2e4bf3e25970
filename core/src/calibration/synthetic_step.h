// DLRMs whose tables are all alike, with random batches. The cost model is calibrated and measured with them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/machine.h"
#include "tessera/planner.h"
#include "tessera/step_figures.h"
#include "tessera/trainer.h"

namespace tessera {

struct SyntheticModel {
  int64_t tables, rows, dim;
  int64_t batch;                       // per rank
  int64_t pooling;                     // ids of a bag
  double zipf = 0;                     // 0: uniform
  std::vector<int64_t> hidden = {64};  // layers of the bottom MLP except the last one, and of the top MLP
};

// A model, and what the planner and predict_step need to know about it.
class SyntheticStep {
 public:
  // `planner` has the topology, its figures and the transport's rules; the model adds the rest.
  SyntheticStep(SyntheticModel model, PlannerOptions planner);
  SyntheticStep(SyntheticModel model, int ranks, const Machine& machine);  // ranks of one host

  const SyntheticModel& model() const { return model_; }
  const PlannerModule& module() const { return module_; }
  const PlannerOptions& planner() const { return planner_; }
  DenseWork dense() const;
  ShardingPlan plan_of(EmbeddingModuleShardingPlan tables) const;
  StepPrediction predicted(const Runtime& runtime, const ShardingPlan& plan) const;
  // Makes `count` batches of one rank. Popular rows are spread over the whole table.
  std::vector<Batch> batches(int rank, int count) const;
  // Collective over the group. `kernel` is a component's id, or "auto".
  std::unique_ptr<ModelTrainer> trainer(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                                        const std::string& kernel, ShardingPlan plan) const;

 private:
  DlrmOptions dlrm() const;

  SyntheticModel model_;
  PlannerModule module_;
  PlannerOptions planner_;
};

}  // namespace tessera
