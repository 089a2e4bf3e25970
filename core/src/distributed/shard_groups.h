// The owner's part of a step: this rank's shards, grouped into kernel instances, looked up and updated for everybody.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/output_layout.h"
#include "distributed/received_batch.h"
#include "distributed/routed_batch.h"
#include "distributed/row_executor.h"
#include "distributed/wire_layout.h"
#include "modules/lookup_view.h"
#include "tessera/device.h"
#include "tessera/lookup.h"
#include "wiring/local_shards.h"
#include "wiring/wiring.h"

namespace tessera {

class ShardGroups {
 public:
  // A Lookup for each group.
  ShardGroups(const Runtime& runtime, LocalShards local);

  const std::vector<LocalShard>& shards() const { return shards_; }
  const std::vector<std::shared_ptr<Lookup>>& lookups() const { return lookups_; }
  const LocalShard* find(int table, int shard) const;

 private:
  std::vector<LocalShard> shards_;
  std::vector<std::shared_ptr<Lookup>> lookups_;
};

// One shard of a group, looked up and updated by itself: in steps that are sampled.
struct AloneLookup {
  int group = 0;
  int table = 0;  // index in the group
  std::vector<tsr_lookup_feature> features;
  Lookup::Context context;
};

// The requests to the kernels for a batch, and the contexts that they keep of it.
struct OwnerCalls {
  std::vector<std::vector<tsr_lookup_feature>> features;  // by shard group
  std::vector<Lookup::Context> contexts;                  // by shard group
  std::vector<AloneLookup> alone;                         // instead of both, where the step is sampled
  std::vector<tsr_lookup_feature> early;                  // of a prefetch
  Buffer output_rows{DType::kInt32};  // as ReceivedBatch::offsets, of local rows if there are empty bags
};

// The batch that a rank received, on the device of its kernels.
struct OwnerBatch {
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};  // copies, where that is a device
  Tensor taken_ids, taken_offsets, taken_weights;                               // undefined weights: there are none
  void take(const ReceivedBatch& received, RowExecutor& executor);
  LookupView view(const OwnerCalls& calls) const;
};

// Looks up what a rank received.
class OwnerLookup {
 public:
  // The tensors of rows or their gradients: the wire for those that travel, the collection's output for the others.
  using Rows = std::array<Tensor, 2>;

  OwnerLookup(const RankWiring& own, ShardGroups& groups);

  // The source of a batch and the target of its rows.
  struct Places {
    const RoutedBatch& routed;
    const ReceivedBatch& received;
    const WireLayout& wire;
    const OutputLayout& output;
  };

  // Tells the kernels that want it what they will be asked for. Beside the other calls, about another batch.
  void prefetch(const ReceivedBatch& received, OwnerCalls& calls) const;
  // The work of the kernels.
  void find_features(const Places& places, OwnerCalls& calls) const;
  // `batch`: the received one, where the kernels are.
  void forward(const LookupView& batch, const Rows& rows, bool keep_context, OwnerCalls& calls);
  // Updates the shards: inside the kernel's backward (fused), or from the gradients that it hands out (dense).
  void backward(const LookupView& batch, const Rows& gradients, double grad_scale, OwnerCalls& calls);

  // The same, shard by shard instead of group by group, and timed: the numbers are the same, the calls are more.
  // Seconds are added to times[k] of the k-th shard of the groups.
  struct ShardSeconds {
    double lookup = 0, update = 0;
  };
  void forward_alone(const LookupView& batch, const Rows& rows, OwnerCalls& calls, std::vector<ShardSeconds>& times);
  void backward_alone(const LookupView& batch, const Rows& gradients, double grad_scale, OwnerCalls& calls,
                      std::vector<ShardSeconds>& times);

 private:
  struct OwnRowRoute {
    int id_route = 0;  // among the own id routes
    int group = 0;
    int table = 0;  // index in the group
    int table_feature = 0;
    int64_t col = 0, cols = 0;
  };
  // A group's features of a step, and where the gradients of their rows are.
  struct Gradients {
    int group;
    const std::vector<tsr_lookup_feature>& features;
    const Rows& rows;
    double scale;
  };
  bool idle(size_t group, const OwnerCalls& calls) const;
  void update(const LookupView& batch, Lookup::Context&& context, const Gradients& gradients);
  ShardSeconds& of(std::vector<ShardSeconds>& times, const AloneLookup& alone) const;

  const RankWiring& own_;
  ShardGroups& groups_;
  std::vector<OwnRowRoute> row_routes_;
};

}  // namespace tessera
