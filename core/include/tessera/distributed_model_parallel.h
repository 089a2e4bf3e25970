// tessera/distributed_model_parallel.h - a model's collections sharded by one plan, with a replicated dense part.
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
// Construction is collective: rank 0 plans, all ranks get that plan, and dense parameters become rank 0's.
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
#include "tessera/sharding.h"

namespace tessera {

class GradientBuckets;

// The parts of a model: collections by path (usually on kMeta) and the dense parameters.
struct ParallelModel {
  std::vector<std::pair<std::string, const EmbeddingBagCollection*>> bag_collections;
  std::vector<std::pair<std::string, const EmbeddingCollection*>> collections;
  ParameterList dense;
  ParameterList buffers = {};  // of dense layers: broadcast and saved like parameters, but not trained
};

struct DistributedModelParallelOptions {
  std::optional<ShardingPlan> plan;  // must be the same on all ranks; unset: rank 0 plans
  // Options for rank 0's planning; unset: defaults for this world on the CPU. A given plan must satisfy its
  // constraints.
  std::optional<PlannerOptions> planner;
  // Options of all collections. A collection's own optimizer, weights and bounds take precedence.
  ShardedModuleOptions sharded;
  double bucket_mib = 4;             // approximate size of buckets for the reduction of dense gradients
  bool sum_dense_gradients = false;  // sum over ranks instead of mean
  // Dense gradients travel as bfloat16. Sums are float32, rounded once, and the same on all ranks. kUnimplemented: the
  // dense parameters are on a device.
  bool round_dense_gradients = false;
};

// One rank plans, and all get that plan. Planning may take longer than the group's deadline. kFailedPrecondition: the
// ranks' models or constraints differ; the error names the first table or setting that does.
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

  // Dense parameters, and one parameter per table, "path.embedding_bags.t.weight", with in_backward set and without a
  // value.
  ParameterList parameters() const;
  const ParameterList& buffers() const { return buffers_; }
  // The tables' fused optimizers, one member per collection. Combine it with one for the dense part.
  KeyedOptimizerPtr fused_optimizer();

  // Mean (or sum) over ranks of the dense parameters' gradients. A rank without a gradient counts as 0; without one on
  // any rank, the parameter keeps none. On a device with several ranks every parameter gets one, possibly 0, because a
  // check would have to wait for the device. In host memory with several ranks, `grad` becomes `grad_buffer`, which the
  // next step overwrites; code that makes gradients elsewhere must set `grad` anew in each step. Collective.
  void all_reduce_gradients();
  // Optional: tells before all_reduce_gradients() that these dense parameters, or all of them, have their gradients, so
  // that their exchange begins while other gradients are computed. All ranks name the same parameters, in any order.
  // Collective.
  void gradients_finished(const ParameterList& parameters);
  void gradients_finished();

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
