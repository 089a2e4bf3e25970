// A sharder's route() and unroute() for one table, with the same description of the table in both.
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

// The row sets of a table whose rows are routed, as tsr_layout numbers them.
struct RowSets {
  explicit RowSets(const ParameterSharding& sharding);
  std::vector<int> of_shard;
  std::vector<int64_t> rows;  // by row set
};

class RowRouter {
 public:
  // The hosts of the ranks that the plan is for.
  struct World {
    int ranks = 1, local_ranks = 1;
    int device_type = kDLCPU;
  };
  // kFailedPrecondition when the sharder has no route().
  RowRouter(ComponentPtr sharder, const EmbeddingBagConfig& table, const ParameterSharding& sharding,
            const World& world);
  RowRouter(const RowRouter&) = delete;

  // Rows keep their ids (TSR_SHARDER_KEEPS_IDS): the local row of an id is the id.
  bool keeps_ids() const { return keeps_ids_; }
  int32_t row_set(int shard) const { return row_sets_.of_shard[static_cast<size_t>(shard)]; }
  // Row set and row there of every id; asks for no memory. kInternal when the sharder names a row that does not exist,
  // or none.
  void route(std::span<const int64_t> ids, int32_t* row_sets, int64_t* rows) const;
  // The ids behind rows [first, first + count) of a shard. kInternal where route() does not take each of them back:
  // the row sets have as many rows as the table, so once this was asked for all rows, no two ids share one.
  std::vector<int64_t> unroute(int shard, int64_t first, int64_t count) const;

  // The targets of some of the table's ids: all of a small table, otherwise so many.
  static constexpr int64_t kSampled = 65536;
  struct Sample {
    std::vector<int64_t> ids;  // ascending
    std::vector<int32_t> row_sets;
    std::vector<int64_t> rows;
  };
  Sample sample() const;
  uint64_t fingerprint() const;  // of the sample: equal on all ranks, or the sharder is wrong

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
