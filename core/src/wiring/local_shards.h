// The shards that a plan gives to one rank, and the kernel instances that hold them.
#pragma once

#include <string>
#include <vector>

#include "tessera/device.h"
#include "tessera/embedding_configs.h"
#include "tessera/lookup.h"
#include "tessera/sharding.h"
#include "wiring/row_router.h"

namespace tessera {

// A shard that this rank holds, replicated or not, and the place of its rows.
struct LocalShard {
  int table = 0;
  int shard = 0;  // index into the table's ParameterSharding::shards
  ShardMetadata where;
  int group = 0;  // index of the kernel instance
  int index = 0;  // index of the table in that instance
};

struct ShardGroupOptions {
  std::string kernel = "auto";  // plugin id
  DeviceStreamPtr stream;
  OptimizerSpec optimizer;                 // for tables that name no optimizer themselves
  uint64_t seed = 0;                       // of start values
  bool sequence = false;                   // true: rows are not pooled
  std::vector<RowRouterPtr> routers = {};  // by table, null if rows are ranges; empty: start values are not needed
};

struct LocalShards {
  std::vector<LocalShard> shards;  // in the order of tables, then of a table's shards
  std::vector<LookupOptions> groups;
};

// Lists the shards of `rank`, including those without rows. If `replicated`, these are only the shards that every rank
// has (data-parallel tables and replicated rows), otherwise only the others. Shards with equal data type, row format,
// optimizer and compute kernel share an instance.
LocalShards local_shards(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                         int rank, bool replicated, const ShardGroupOptions& options);

}  // namespace tessera
