// tessera/distributed_model_parallel.h - a model's collections sharded by one plan, its dense part replicated.
//
//   EmbeddingBagCollection ebc(runtime, {.tables = tables, .device = kMeta});   // describes, allocates nothing
//   DistributedModelParallel model(runtime, {.bag_collections = {{"sparse", &ebc}}, .dense = mlp.parameters()}, group,
//                                  {.sharded = {.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})"}}});
//   auto out = model.bags("sparse").forward(kjt).wait();
//   ...
//   model.bags("sparse").backward(out, grad);
//   model.all_reduce_gradients();   // dense part: mean over ranks
//   optimizer.step();               // over in_backward_optimizer_filter(model.parameters())
//   optimizer.zero_grad();          // the next step's gradients are set anew
//
// Construction is collective: rank 0 plans, all get the same plan, dense parameters become rank 0's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/embedding_modules.h"
#include "tessera/optim.h"
#include "tessera/planner.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding_plan.h"

namespace tessera {

class GradientBuckets;

// The model to be made parallel: collections by path (usually on kMeta) and the dense parameters.
struct ParallelModel {
  std::vector<std::pair<std::string, const EmbeddingBagCollection*>> bag_collections;
  std::vector<std::pair<std::string, const EmbeddingCollection*>> collections;
  ParameterList dense;
  ParameterList buffers = {};  // of dense layers: broadcast and saved as parameters, trained by nobody
};

struct DistributedModelParallelOptions {
  std::optional<ShardingPlan> plan;  // the same on all ranks; unset: rank 0 plans
  // For that; unset: defaults for this world on the CPU. A plan that is given keeps its constraints, or is refused.
  std::optional<PlannerOptions> planner;
  // Options of all collections; optimizer, weights and bounds of a collection's own options win.
  ShardedModuleOptions sharded;
  double bucket_mib = 4;             // dense gradients are reduced in buckets of about this size
  bool sum_dense_gradients = false;  // sum over ranks instead of the mean
};

// One rank plans, all get that plan. kFailedPrecondition when the ranks' models or constraints differ: the sentence
// names the first table or setting that does. Planning may take longer than the group's deadline.
ShardingPlan collective_plan(const Runtime& runtime, const std::vector<PlannerModule>& modules,
                             const PlannerOptions& options, const ProcessGroup& group);

class DistributedModelParallel {
 public:
  DistributedModelParallel(const Runtime& runtime, const ParallelModel& model, std::shared_ptr<ProcessGroup> group,
                           DistributedModelParallelOptions options = {});
  DistributedModelParallel(DistributedModelParallel&&) noexcept;
  DistributedModelParallel& operator=(DistributedModelParallel&&) noexcept;
  ~DistributedModelParallel();

  const ShardingPlan& plan() const { return plan_; }
  const ProcessGroup& group() const { return *group_; }
  ShardedEmbeddingBagCollection& bags(const std::string& path);  // kNotFound lists the paths
  ShardedEmbeddingCollection& collection(const std::string& path);
  // All sharded collections by path.
  std::vector<std::pair<std::string, ShardedEmbeddings*>> sharded();

  // Dense parameters, and one for each table, "path.embedding_bags.t.weight", with in_backward set and no value here.
  ParameterList parameters() const;
  const ParameterList& buffers() const { return buffers_; }
  // Fused optimizers of the tables, one member per collection; combine it with one for the dense part.
  KeyedOptimizerPtr fused_optimizer();

  // Mean (or sum) over ranks of the dense parameters' gradients; a rank without one counts as 0, and a parameter
  // without one on all ranks stays without. On a device it is enqueued, and with several ranks all have one then, be it
  // 0: that nobody has any is not known without waiting. In host memory, with several ranks, `grad` is `grad_buffer`
  // then, which the next step writes again: who makes gradients elsewhere sets `grad` anew in each step. Collective.
  void all_reduce_gradients();

 private:
  void broadcast_dense();

  std::shared_ptr<ProcessGroup> group_;
  ShardingPlan plan_;
  std::vector<std::pair<std::string, std::unique_ptr<ShardedEmbeddingBagCollection>>> bags_;
  std::vector<std::pair<std::string, std::unique_ptr<ShardedEmbeddingCollection>>> collections_;
  ParameterList dense_, buffers_;
  bool sum_;
  std::unique_ptr<GradientBuckets> gradients_;
};

}  // namespace tessera
