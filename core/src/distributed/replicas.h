// Data-parallel tables: the whole table on every rank, looked up where the batch is, gradients reduced over all ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "distributed/checked_batch.h"
#include "distributed/lanes.h"
#include "distributed/shard_groups.h"
#include "tessera/process_group.h"

namespace tessera {

class Replicas {
 public:
  Replicas(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
           const EmbeddingModuleShardingPlan& plan, const LaneMap& map, int rank, const ShardGroupOptions& options);
  bool empty() const { return groups_.shards().empty(); }
  ShardGroups& groups() { return groups_; }
  const ShardGroups& groups() const { return groups_; }

  using Contexts = std::vector<Lookup::Context>;  // by group
  // Writes the replicated slots of `out`.
  void forward(const CheckedBatch& batch, bool weighted, bool sequence, const Tensor& out, const SlotLayout& layout,
               Contexts* contexts);
  // Sums each table's gradient over all ranks, times `scale`, and applies the table's optimizer to the rows that
  // occurred on any rank. Without optimizer the gradient is only kept.
  void backward(const CheckedBatch& batch, bool weighted, bool sequence, const Tensor& grad, const SlotLayout& layout,
                Contexts&& contexts, const ProcessGroup& group, double scale);
  // Table name -> reduced gradient [rows, dim] of the last backward.
  std::vector<std::pair<std::string, Tensor>> gradients() const;

 private:
  void fill_features(const CheckedBatch& batch, bool sequence, const SlotLayout& layout);
  void apply_reduced(int64_t begin, const LocalShard& shard);

  const LaneMap& map_;
  const std::vector<EmbeddingBagConfig>& tables_;
  ShardGroups groups_;
  std::vector<std::vector<tsr_lookup_feature>> features_;  // by group
  Buffer reduce_{DType::kFloat32};  // per table: gradient [rows, dim], then how many ranks had the row [rows]
};

}  // namespace tessera
