// The shards that a plan gives one rank, and the kernel instances that hold them.
#pragma once

#include <string>
#include <vector>

#include "tessera/device.h"
#include "tessera/embedding_configs.h"
#include "tessera/lookup.h"
#include "tessera/sharding.h"
#include "wiring/row_router.h"

namespace tessera {

// A shard held by this rank, replicated or not, and where its rows are.
struct LocalShard {
  int table = 0;
  int shard = 0;  // index into the table's ParameterSharding::shards
  ShardMetadata where;
  int group = 0;  // index of the kernel instance
  int index = 0;  // table index there
};

struct ShardGroupOptions {
  std::string kernel = "auto";  // plugin id
  DeviceStreamPtr stream;
  OptimizerSpec optimizer;  // of tables that name none themselves
  uint64_t seed = 0;        // of start values
  bool sequence = false;    // nothing is pooled
  std::vector<RowRouterPtr> routers =
      {};  // by table, null where rows are ranges; empty: start values are not asked for
};

struct LocalShards {
  std::vector<LocalShard> shards;  // in the order of tables, and of a table's shards
  std::vector<LookupOptions> groups;
};

// Shards of `rank`, also those without rows: if `replicated` only those that every rank has (data-parallel tables and
// replicated rows), otherwise only the others. Shards of equal data type, row format, optimizer and compute kernel
// share an instance.
LocalShards local_shards(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                         int rank, bool replicated, const ShardGroupOptions& options);

}  // namespace tessera
