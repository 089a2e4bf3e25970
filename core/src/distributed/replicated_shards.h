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
  // `shards`: of `tables`, as this rank holds them, where `stream` is (null: in host memory).
  ReplicatedShards(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, const Wiring& wiring,
                   LocalShards shards, const DeviceStreamPtr& stream);
  bool empty() const { return groups_.shards().empty(); }
  ShardGroups& groups() { return groups_; }
  const ShardGroups& groups() const { return groups_; }

  using Contexts = std::vector<Lookup::Context>;  // by call
  // A step's batch, which `data_parallel` and `replicated` have taken, and where its rows go.
  struct Batch {
    const CheckedBatch& checked;
    const DataParallelInput& data_parallel;
    const OutputLayout& layout;
    const RoutedBatch& routed;
    const ReplicatedInput& replicated;
    const WireLayout& wire;
  };
  // Rows, or their gradients: of data-parallel tables in the output, replicated rows beside those of the row routes.
  struct Rows {
    Tensor output, wire;
  };
  // Scales of data-parallel tables, and of the replicated rows of others.
  struct Scales {
    double data_parallel = 1, replicated_rows = 1;
  };
  // Writes the rows of data-parallel tables to the output, and replicated rows beside those of the row routes. On a
  // device it only enqueues.
  void forward(const Batch& batch, const Rows& rows, Contexts* contexts);
  // Sums each table's gradient over all ranks, times its scale, and applies the table's optimizer to the rows that
  // occurred on any rank. Without optimizer the gradient is only kept. The batch tells which rows a rank had, so ranks
  // tell each other those first, and then reduce the gradients of these rows alone. On a device, gradients stay there,
  // and the host waits for what backward_rows has to read.
  void backward(const Batch& batch, const Rows& gradients, Contexts&& contexts, const ProcessGroup& group,
                const Scales& scales);
  // Table name -> reduced gradient [rows, dim] of the last backward, of data-parallel tables.
  std::vector<std::pair<std::string, Tensor>> gradients() const;

 private:
  // One lookup of one kernel instance: of data-parallel tables, or of replicated rows.
  struct Call {
    int group;
    bool replicated_rows;
    std::vector<tsr_lookup_feature> features;
  };
  Call& call_of(const LocalShard& shard);
  void fill_features(const Batch& batch);
  void find_rows(const Batch& batch, const ProcessGroup& group);
  void list_rows();
  // Rows of sequences stand where their ids stood in the caller's batch, and those of ids that were dropped are zeros;
  // kernels have them side by side. The first moves them apart; the second gives a copy of their gradients without.
  void move_apart(const Batch& batch, const Tensor& output) const;
  Tensor side_by_side(const Batch& batch, const Tensor& gradient) const;
  template <class Each>
  void each_sparse_feature(const Batch& batch, const Each& each) const;
  void take_gradient(size_t shard, const RowGradient& gradient);
  void reduce_and_apply(const Tensor& rows, const ProcessGroup& group);
  Tensor gradient_of(size_t shard) const;

  const uint64_t place_;  // of these tables (CallSite::place)
  const Wiring& wiring_;
  const std::vector<EmbeddingBagConfig>& tables_;
  ShardGroups groups_;
  std::vector<Call> calls_;
  std::vector<size_t> shard_of_table_;
  std::vector<std::vector<size_t>> shard_of_;  // by group and table of its lookup
  TouchedRows touched_;
  // The result of the last backward: the rows that any rank had, and their gradients, one shard behind the other.
  Buffer listed_{DType::kInt64}, listed_there_{DType::kInt64};  // in host memory, and where the tables are
  Buffer sums_{DType::kFloat32};
  std::vector<int64_t> listed_begin_, sums_begin_;  // by shard; one more. Empty before the first backward
  std::unique_ptr<RowExecutor> executor_;
  std::unique_ptr<RowMover> mover_;  // this rank's gradients -> sums, a target for each shard
};

}  // namespace tessera
