// The owner's part of a step: this rank's shards, grouped into kernel instances, are looked up and updated for all
// homes.
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
  // Makes a Lookup for each group.
  ShardGroups(const Runtime& runtime, LocalShards local);

  const std::vector<LocalShard>& shards() const { return shards_; }
  const std::vector<std::shared_ptr<Lookup>>& lookups() const { return lookups_; }
  const LocalShard* find(int table, int shard) const;

 private:
  std::vector<LocalShard> shards_;
  std::vector<std::shared_ptr<Lookup>> lookups_;
};

// One shard of a group that is looked up and updated by itself, in steps whose time is sampled per shard.
struct AloneLookup {
  int group = 0;
  int table = 0;  // index in the group
  std::vector<tsr_lookup_feature> features;
  Lookup::Context context;
};

// The requests to the kernels for a batch, and the contexts of their forward.
struct OwnerCalls {
  std::vector<std::vector<tsr_lookup_feature>> features;  // by shard group
  std::vector<Lookup::Context> contexts;                  // by shard group
  std::vector<AloneLookup> alone;                         // used instead of the two above in steps that are sampled
  std::vector<tsr_lookup_feature> early;                  // the requests of a prefetch
  // Parallel to ReceivedBatch::offsets: output rows of local rows, if there are empty bags.
  Buffer output_rows{DType::kInt32};
};

// The batch that a rank received, in the memory of its kernels.
struct OwnerBatch {
  // Copies, if the kernels are on a device.
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  Tensor taken_ids, taken_offsets, taken_weights;  // undefined weights: the batch has none
  void take(const ReceivedBatch& received, RowExecutor& executor);
  LookupView view(const OwnerCalls& calls) const;
};

// Looks up and updates the rows that a rank was asked for.
class OwnerLookup {
 public:
  // Tensors of rows or of their gradients: the wire for rows that travel, and the collection's output for local rows.
  using Rows = std::array<Tensor, 2>;

  OwnerLookup(const RankWiring& own, ShardGroups& groups);

  // The source of a batch and the target of its rows.
  struct Places {
    const RoutedBatch& routed;
    const ReceivedBatch& received;
    const WireLayout& wire;
    const OutputLayout& output;
  };

  // Tells kernels that want it which rows will be looked up. It may run while the other calls work on an earlier batch.
  void prefetch(const ReceivedBatch& received, OwnerCalls& calls) const;
  // Lists the kernels' features of this batch in `calls`.
  void find_features(const Places& places, OwnerCalls& calls) const;
  // `batch` is the received batch in the memory of the kernels.
  void forward(const LookupView& batch, const Rows& rows, bool keep_context, OwnerCalls& calls);
  // Updates the shards: inside the kernel's backward (fused), or from the gradients that it returns (dense).
  void backward(const LookupView& batch, const Rows& gradients, double grad_scale, OwnerCalls& calls);

  // The same, but shard by shard instead of group by group, and timed. There are more calls, and the results are equal.
  // Seconds are added to times[k] for shard k of the groups.
  struct ShardSeconds {
    double lookup = 0, update = 0;
  };
  void forward_alone(const LookupView& batch, const Rows& rows, OwnerCalls& calls, std::vector<ShardSeconds>& times);
  void backward_alone(const LookupView& batch, const Rows& gradients, double grad_scale, OwnerCalls& calls,
                      std::vector<ShardSeconds>& times);

 private:
  struct OwnRowRoute {
    int id_route = 0;  // index among this rank's id routes
    int group = 0;
    int table = 0;  // index in the group
    int table_feature = 0;
    int64_t col = 0, cols = 0;
  };
  // A group's features in a step, and the gradients of their rows.
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
