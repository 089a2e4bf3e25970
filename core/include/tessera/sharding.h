// tessera/sharding.h - shards tables without a planner: one sharder cuts a table, and the caller names the ranks.
//
//   auto plan = construct_module_sharding_plan(runtime, tables,
//                                              {{"film", row_wise()}, {"user", table_wise(1)}}, topology);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/planner.h"
#include "tessera/runtime.h"
#include "tessera/sharding_plan.h"

namespace tessera {

struct ShardingRequest {
  std::string sharding_type;   // a sharder's id
  std::string compute_kernel;  // empty: "dense" for data-parallel tables, otherwise "fused"
  // Ranks for the layout's placement; empty: from rank 0 (or host 0) on.
  //   any rank:   shard i goes to ranks[i % size]
  //   every rank: only all ranks in order
  //   in a host:  ranks of one host; a single one stands for its whole host
  //   hosts:      any rank of each host, in the wanted order
  std::vector<int> ranks;
  int64_t min_partition = 0;  // least width of a column shard; 0: the sharder's default
  int64_t pieces = 0;         // for column splits: this many of equal width, or an error; 0: the sharder chooses
};

// TorchRec's names (torchrec.distributed.sharding_plan).
ShardingRequest table_wise(int rank);
ShardingRequest row_wise();
ShardingRequest column_wise(std::vector<int> ranks);  // one shard per entry
ShardingRequest table_row_wise(int host, const Topology& topology);
ShardingRequest table_column_wise(std::vector<int> ranks);  // of one host, one shard per entry
ShardingRequest grid_shard(const std::vector<int>& hosts, const Topology& topology);  // one block per host
ShardingRequest data_parallel();

// kInvalidArgument: the ranks do not suit the layout. kNotFound: an unknown sharder. kFailedPrecondition: the sharder
// cannot cut this table.
ParameterSharding make_sharding(const Runtime& runtime, const EmbeddingBagConfig& table, const ShardingRequest& request,
                                const Topology& topology);

// Every table must have a request.
EmbeddingModuleShardingPlan construct_module_sharding_plan(const Runtime& runtime,
                                                           const std::vector<EmbeddingBagConfig>& tables,
                                                           const std::map<std::string, ShardingRequest>& requests,
                                                           const Topology& topology);

// Completes a sharding from elsewhere (type, kernel, rectangles, ranks): sets combine and routed as the sharder of that
// type does, and gives data-parallel tables their shards (one full table per rank). kInvalidArgument: the rectangles do
// not tile the table, or a rank is outside the world.
ParameterSharding completed(const Runtime& runtime, const EmbeddingBagConfig& table, ParameterSharding sharding,
                            const Topology& topology);

}  // namespace tessera
