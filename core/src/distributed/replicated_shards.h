// The shards that every rank has: data-parallel tables, and the replicated rows of tables whose other rows are split
// (Wiring::replicated_rows). They are looked up where the batch is, and their gradients are reduced over all ranks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/checked_batch.h"
#include "distributed/data_parallel_input.h"
#include "distributed/output_layout.h"
#include "distributed/replicated_input.h"
#include "distributed/row_executor.h"
#include "distributed/shard_groups.h"
#include "distributed/touched_rows.h"
#include "distributed/wire_layout.h"
#include "tessera/process_group.h"
#include "wiring/wiring.h"

namespace tessera {

class ReplicatedShards {
 public:
  // `shards` are the shards of `tables` that this rank holds, on the device of `stream` (null: in host memory).
  ReplicatedShards(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, const Wiring& wiring,
                   LocalShards shards, const DeviceStreamPtr& stream);
  bool empty() const { return groups_.shards().empty(); }
  ShardGroups& groups() { return groups_; }
  const ShardGroups& groups() const { return groups_; }

  using Contexts = std::vector<Lookup::Context>;  // by index in calls_
  // A step's batch, which `data_parallel` and `replicated` have taken, and the places of its rows.
  struct Batch {
    const CheckedBatch& checked;
    const DataParallelInput& data_parallel;
    const OutputLayout& layout;
    const RoutedBatch& routed;
    const ReplicatedInput& replicated;
    const WireLayout& wire;
  };
  // Rows or their gradients. `output` has those of data-parallel tables; `wire` has replicated rows beside the rows of
  // row routes.
  struct Rows {
    Tensor output, wire;
  };
  // Factors of gradients: for data-parallel tables, and for the replicated rows of other tables.
  struct Scales {
    double data_parallel = 1, replicated_rows = 1;
  };
  // Writes the rows of data-parallel tables to the output, and replicated rows beside the rows of row routes. On a
  // device it only enqueues.
  void forward(const Batch& batch, const Rows& rows, Contexts* contexts);
  // Sums each table's gradient over all ranks, times its scale, and applies the table's optimizer to the rows that any
  // rank had in its batch. Without an optimizer the gradient is only kept. Ranks first tell each other which rows they
  // had, and then reduce the gradients of only these rows. On a device gradients stay there, and the host waits for the
  // results that it has to read.
  void backward(const Batch& batch, const Rows& gradients, Contexts&& contexts, const ProcessGroup& group,
                const Scales& scales);
  // The tables' names and reduced gradients [rows, dim] of the last backward, for data-parallel tables.
  std::vector<std::pair<std::string, Tensor>> gradients() const;

 private:
  // One lookup of one kernel instance, either in data-parallel tables or in replicated rows.
  struct Call {
    int group;
    bool replicated_rows;
    std::vector<tsr_lookup_feature> features;
  };
  Call& call_of(const LocalShard& shard);
  void fill_features(const Batch& batch);
  void find_rows(const Batch& batch, const ProcessGroup& group);
  void list_rows();
  // Rows of a sequence have the positions of their ids in the caller's batch, and dropped ids have rows of zeros.
  // Kernels write rows without gaps. move_apart() moves them to their positions; side_by_side() returns a copy of their
  // gradients without gaps.
  void move_apart(const Batch& batch, const Tensor& output) const;
  Tensor side_by_side(const Batch& batch, const Tensor& gradient) const;
  template <class Each>
  void each_sparse_feature(const Batch& batch, const Each& each) const;
  void take_gradient(size_t shard, const RowGradient& gradient);
  void reduce_and_apply(const Tensor& rows, const ProcessGroup& group);
  Tensor gradient_of(size_t shard) const;

  const uint64_t place_;  // identifies these tables (CallSite::place)
  const Wiring& wiring_;
  const std::vector<EmbeddingBagConfig>& tables_;
  ShardGroups groups_;
  std::vector<Call> calls_;
  std::vector<size_t> shard_of_table_;
  std::vector<std::vector<size_t>> shard_of_;  // by group, then table of its lookup
  TouchedRows touched_;
  // The result of the last backward: the rows that any rank had, and their gradients, shard after shard.
  Buffer listed_{DType::kInt64}, listed_there_{DType::kInt64};  // in host memory, and on the tables' device
  Buffer sums_{DType::kFloat32};
  // Begins by shard, with one more entry at the end; empty before the first backward.
  std::vector<int64_t> listed_begin_, sums_begin_;
  std::unique_ptr<RowExecutor> executor_;
  std::unique_ptr<RowMover> mover_;  // adds this rank's gradients to sums_; one target for each shard
};

}  // namespace tessera
