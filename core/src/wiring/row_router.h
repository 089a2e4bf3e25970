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
#include "tessera/sharding_plan.h"

namespace tessera {

class RowRouter {
 public:
  // kFailedPrecondition when the sharder has no route().
  RowRouter(PartPtr sharder, const EmbeddingBagConfig& table, std::vector<int64_t> shard_rows);
  RowRouter(const RowRouter&) = delete;

  // Shard and row there of every id. kInternal when the sharder names a row that does not exist.
  void route(std::span<const int64_t> ids, int32_t* shards, int64_t* rows) const;
  // The ids behind rows [first, first + count) of a shard.
  std::vector<int64_t> unroute(int shard, int64_t first, int64_t count) const;

 private:
  PartPtr sharder_;
  EmbeddingBagConfig config_;
  std::vector<int64_t> shard_rows_;
  std::vector<const char*> features_;
  tsr_table table_{};
};
using RowRouterPtr = std::shared_ptr<const RowRouter>;

// By table; null where rows are ranges.
std::vector<RowRouterPtr> row_routers(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                      const EmbeddingModuleShardingPlan& plan);

}  // namespace tessera
