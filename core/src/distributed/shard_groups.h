// The owner's part of a step: this rank's shards, grouped into kernel instances, looked up and updated for everybody.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/step.h"
#include "tessera/device.h"
#include "tessera/lookup.h"
#include "wiring/local_shards.h"
#include "wiring/wiring.h"

namespace tessera {

class ShardGroups {
 public:
  // See local_shards(): a Lookup for each of its groups.
  ShardGroups(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
              const EmbeddingModuleShardingPlan& plan, int rank, bool replicas, const ShardGroupOptions& options);

  const std::vector<LocalShard>& shards() const { return shards_; }
  const std::vector<std::shared_ptr<Lookup>>& lookups() const { return lookups_; }
  const LocalShard* find(int table, int shard) const;

 private:
  std::vector<LocalShard> shards_;
  std::vector<std::shared_ptr<Lookup>> lookups_;
};

// Looks up what `step` received.
class OwnerLookup {
 public:
  // Where rows or their gradients are: those that travel, in step.rows, and the collection's output, where others stay.
  using Rows = std::array<Tensor, 2>;

  OwnerLookup(const RankWiring& own, ShardGroups& groups);

  // What the kernels have to do; after lay_out_rows. `layout`: of the output.
  void find_features(Step& step, const SlotLayout& layout) const;
  void forward(Step& step, const Rows& rows, bool keep_context);
  // Updates the shards: inside the kernel's backward (fused), or from the gradients that it hands out (dense).
  void backward(Step& step, const Rows& gradients, double grad_scale);

  // The same, shard by shard instead of group by group, and timed: the numbers are the same, the calls are more.
  // Seconds are added to times[k] of the k-th shard of the groups.
  struct ShardSeconds {
    double lookup = 0, update = 0;
  };
  void forward_alone(Step& step, const Rows& rows, std::vector<ShardSeconds>& times);
  void backward_alone(Step& step, const Rows& gradients, double grad_scale, std::vector<ShardSeconds>& times);

 private:
  struct OwnLane {
    int stream = 0;  // among the own streams
    int group = 0;
    int table = 0;  // index in the group
    int slot = 0;
    int64_t col = 0, cols = 0;
  };
  // A group's features of a step, and where the gradients of their rows are.
  struct Gradients {
    int group;
    const std::vector<tsr_lookup_feature>& features;
    const Rows& rows;
    double scale;
  };
  void update(Step& step, Lookup::Context&& context, const Gradients& gradients);
  ShardSeconds& of(std::vector<ShardSeconds>& times, const AloneLookup& alone) const;

  const RankWiring& own_;
  ShardGroups& groups_;
  std::vector<OwnLane> lanes_;
};

}  // namespace tessera
