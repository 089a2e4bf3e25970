// Calls a sharder's route() and unroute() for one table, always with the same description of the table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/sharder.h"
#include "tessera/embedding_configs.h"
#include "tessera/runtime.h"
#include "tessera/sharding.h"

namespace tessera {

// The row sets of a table whose rows are routed, numbered as in tsr_layout.
struct RowSets {
  explicit RowSets(const ParameterSharding& sharding);
  std::vector<int> of_shard;
  std::vector<int64_t> rows;  // by row set
};

class RowRouter {
 public:
  // The ranks and hosts that the plan is for.
  struct World {
    int ranks = 1, local_ranks = 1;
    int device_type = kDLCPU;
  };
  // kFailedPrecondition: the sharder has no route().
  RowRouter(ComponentPtr sharder, const EmbeddingBagConfig& table, const ParameterSharding& sharding,
            const World& world);
  RowRouter(const RowRouter&) = delete;

  // True if rows keep their ids (TSR_SHARDER_KEEPS_IDS): the local row of an id is the id.
  bool keeps_ids() const { return keeps_ids_; }
  int32_t row_set(int shard) const { return row_sets_.of_shard[static_cast<size_t>(shard)]; }
  // Finds every id's row set and its row there. Allocates nothing. kInternal: the sharder names no row, or one that
  // does not exist.
  void route(std::span<const int64_t> ids, int32_t* row_sets, int64_t* rows) const;
  // Returns the ids of rows [first, first + count) of a shard. kInternal: route() does not map each of them back to its
  // row. All row sets together have as many rows as the table. So if this succeeds for all rows, no two ids share a
  // row.
  std::vector<int64_t> unroute(int shard, int64_t first, int64_t count) const;

  // Row sets and rows for a sample of the table's ids: all ids of a small table, otherwise this many.
  static constexpr int64_t kSampled = 65536;
  struct Sample {
    std::vector<int64_t> ids;  // ascending
    std::vector<int32_t> row_sets;
    std::vector<int64_t> rows;
  };
  Sample sample() const;
  uint64_t fingerprint() const;  // over the sample; if it differs between ranks, the sharder is wrong

  const EmbeddingBagConfig& table() const { return config_; }
  std::string who() const;  // `sharder acme.hot, table "item"`

 private:
  tsr_route rows_of(std::span<const DLTensor, 3> tensors) const;

  ComponentPtr sharder_;
  EmbeddingBagConfig config_;
  RowSets row_sets_;
  int64_t cookie_;
  bool keeps_ids_;
  std::vector<const char*> features_;
  tsr_table table_{};
  tsr_topology topology_{};
};
using RowRouterPtr = std::shared_ptr<const RowRouter>;

// Routers by table; null if rows are ranges.
std::vector<RowRouterPtr> row_routers(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                      const EmbeddingModuleShardingPlan& plan, const RowRouter::World& world);

}  // namespace tessera
