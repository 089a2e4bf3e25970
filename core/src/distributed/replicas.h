// Data-parallel tables: the whole table on every rank, looked up where the batch is, gradients reduced over all ranks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/checked_batch.h"
#include "distributed/lanes.h"
#include "distributed/row_moves.h"
#include "distributed/shard_groups.h"
#include "distributed/step.h"
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
  // A batch to look up where it is.
  struct Batch {
    const CheckedBatch& checked;
    bool weighted;
    bool sequence;
    DeviceStep* device;  // where tables are on a device; null: in host memory
    const SlotLayout& layout;
  };
  // Writes the replicated slots of `out`. On a device it enqueues only.
  void forward(const Batch& batch, const Tensor& out, Contexts* contexts);
  // Sums each table's gradient over all ranks, times `scale`, and applies the table's optimizer to the rows that
  // occurred on any rank. Without optimizer the gradient is only kept. On a device, gradients stay there; the host
  // tells the other ranks which rows it had, and waits for what backward_rows has to read.
  void backward(const Batch& batch, const Tensor& grad, Contexts&& contexts, const ProcessGroup& group, double scale);
  // Table name -> reduced gradient [rows, dim] of the last backward.
  std::vector<std::pair<std::string, Tensor>> gradients() const;

 private:
  // The rows of a step's gradients, on a device.
  struct DeviceRows {
    explicit DeviceRows(const DeviceStreamPtr& s) : stream(s), moves(s), uploaded(s) {
      host_rows.pinned(s);
      for (Buffer* buffer : {&rows, &packed, &sums}) buffer->on_device(s);
    }
    DeviceStreamPtr stream;
    std::vector<int32_t> place;         // by row of all tables: among those that this rank had, -1: it had none
    std::vector<int64_t> begin;         // by shard, of its rows in host_rows; one more
    std::vector<int64_t> packed_begin;  // by shard, of its elements in `packed`
    Buffer host_rows{DType::kInt64}, rows{DType::kInt64};
    Buffer packed{DType::kFloat32};  // this rank's gradients
    Buffer sums{DType::kFloat32};    // of all ranks, for the rows of any
    RowMoves moves;                  // packed -> sums
    DeviceStream::Event uploaded;
  };

  static LookupView local_batch(const Batch& batch);  // as a kernel takes it
  void fill_features(const Batch& batch);
  void apply_reduced(int64_t begin, const LocalShard& shard);
  void upload_batch(const Batch& batch) const;
  int64_t all_rows() const;
  int64_t list_rows();
  void find_rows(const Batch& batch, const ProcessGroup& group);
  void backward_on_device(const Batch& batch, const Tensor& grad, Contexts&& contexts, const ProcessGroup& group,
                          double scale);
  Tensor device_gradient(size_t shard) const;

  const LaneMap& map_;
  const std::vector<EmbeddingBagConfig>& tables_;
  ShardGroups groups_;
  std::vector<std::vector<tsr_lookup_feature>> features_;  // by group
  // In host memory, per table: gradient [rows, dim], then how many ranks had the row [rows]. On a device the latter.
  Buffer reduce_{DType::kFloat32};
  std::unique_ptr<DeviceRows> on_device_;  // where there is a device, from the first backward on
};

}  // namespace tessera
