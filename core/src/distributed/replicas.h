// Data-parallel tables: the whole table on every rank, looked up where the batch is, gradients reduced over all ranks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/checked_batch.h"
#include "distributed/device_row_lists.h"
#include "distributed/device_step.h"
#include "distributed/output_layout.h"
#include "distributed/shard_groups.h"
#include "distributed/touched_rows.h"
#include "tessera/process_group.h"
#include "wiring/wiring.h"

namespace tessera {

class Replicas {
 public:
  Replicas(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
           const EmbeddingModuleShardingPlan& plan, const Wiring& wiring, int rank, const ShardGroupOptions& options);
  bool empty() const { return groups_.shards().empty(); }
  ShardGroups& groups() { return groups_; }
  const ShardGroups& groups() const { return groups_; }

  using Contexts = std::vector<Lookup::Context>;  // by group
  // A batch to look up where it is.
  struct Batch {
    const CheckedBatch& checked;
    bool weighted;
    DeviceStep* device;  // where tables are on a device; null: in host memory
    const OutputLayout& layout;
  };
  // Writes the replicated slots of `out`. On a device it enqueues only.
  void forward(const Batch& batch, const Tensor& out, Contexts* contexts);
  // Sums each table's gradient over all ranks, times `scale`, and applies the table's optimizer to the rows that
  // occurred on any rank. Without optimizer the gradient is only kept. The batch tells which rows a rank had, so ranks
  // tell each other those first, and then reduce the gradients of these rows alone. On a device, gradients stay there,
  // and the host waits for what backward_rows has to read.
  void backward(const Batch& batch, const Tensor& grad, Contexts&& contexts, const ProcessGroup& group, double scale);
  // Table name -> reduced gradient [rows, dim] of the last backward.
  std::vector<std::pair<std::string, Tensor>> gradients() const;

 private:
  // The rows of a step's gradients, on a device.
  struct DeviceRows {
    explicit DeviceRows(const DeviceStreamPtr& s) : stream(s), moves(s), uploaded(s) {
      for (Buffer* buffer : {&rows, &packed}) buffer->on_device(s);
    }
    DeviceStreamPtr stream;
    std::vector<int64_t> packed_begin;  // by shard, of its elements in `packed`
    Buffer rows{DType::kInt64};
    Buffer packed{DType::kFloat32};  // this rank's gradients
    DeviceRowLists moves;            // packed -> sums
    DeviceStream::Event uploaded;
  };

  static LookupView local_batch(const Batch& batch);  // as a kernel takes it
  void fill_features(const Batch& batch);
  void upload_batch(const Batch& batch) const;
  void find_rows(const Batch& batch, const ProcessGroup& group);
  void list_rows();
  void take_gradient(size_t shard, const RowGradient& gradient);
  void reduce_and_apply(const Tensor& rows, const ProcessGroup& group);
  void backward_on_device(const Batch& batch, const Tensor& grad, Contexts&& contexts, const ProcessGroup& group,
                          double scale);
  void list_moves();
  Tensor gradient_of(size_t shard) const;

  const Wiring& wiring_;
  const std::vector<EmbeddingBagConfig>& tables_;
  ShardGroups groups_;
  std::vector<std::vector<tsr_lookup_feature>> features_;  // by group
  std::vector<size_t> shard_of_table_;
  std::vector<std::vector<size_t>> shard_of_;  // by group and table of its lookup
  TouchedRows touched_;
  // Of the last backward: the rows that any rank had, and their gradients, one shard behind the other.
  Buffer listed_{DType::kInt64}, sums_{DType::kFloat32};
  std::vector<int64_t> listed_begin_, sums_begin_;  // by shard; one more. Empty before the first backward
  std::unique_ptr<DeviceRows> on_device_;           // where there is a device, from the first backward on
};

}  // namespace tessera
