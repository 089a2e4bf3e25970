// tessera/sharding.h - shardings without a planner: ask one sharder to cut one table and say where the pieces go.
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
  std::string compute_kernel;  // empty: "dense" if data-parallel, otherwise "fused"
  // Which ranks, according to the layout's placement; empty: from rank 0 (or host 0) on.
  //   any rank:   piece i goes to ranks[i % size]
  //   every rank: nothing else than all ranks in order
  //   in a host:  ranks of one host; a single one stands for its whole host
  //   hosts:      any rank of each host, in the order wanted
  std::vector<int> ranks;
  int64_t min_partition = 0;  // least width of a column shard; 0: the sharder's default
  int64_t pieces = 0;         // column splits: this many of equal width, an error if that is impossible; 0: as it comes
};

// TorchRec's names (torchrec.distributed.sharding_plan).
ShardingRequest table_wise(int rank);
ShardingRequest row_wise();
ShardingRequest column_wise(std::vector<int> ranks);  // one piece per entry
ShardingRequest table_row_wise(int host, const Topology& topology);
ShardingRequest table_column_wise(std::vector<int> ranks);  // of one host, one piece per entry
ShardingRequest grid_shard(const std::vector<int>& hosts, const Topology& topology);  // one block per host
ShardingRequest data_parallel();

// kInvalidArgument when the ranks do not suit the layout, kNotFound for an unknown sharder, kFailedPrecondition when
// the sharder cannot cut this table.
ParameterSharding make_sharding(const Runtime& runtime, const EmbeddingBagConfig& table, const ShardingRequest& request,
                                const Topology& topology);

// Every table must have a request.
EmbeddingModuleShardingPlan construct_module_sharding_plan(const Runtime& runtime,
                                                           const std::vector<EmbeddingBagConfig>& tables,
                                                           const std::map<std::string, ShardingRequest>& requests,
                                                           const Topology& topology);

// For a sharding that was read from elsewhere (type, kernel, rectangles, ranks): sets combine and routed as the sharder
// of that type says, and gives data-parallel tables one full shard per rank. kInvalidArgument when the rectangles do
// not tile the table or name a rank outside the world.
ParameterSharding completed(const Runtime& runtime, const EmbeddingBagConfig& table, ParameterSharding sharding,
                            const Topology& topology);

}  // namespace tessera
