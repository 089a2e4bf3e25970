#include "tessera/sharding.h"

#include <algorithm>
#include <numeric>

#include "planner/sharders.h"
#include "tessera/abi/kernel.h"
#include "wiring/tiling.h"

namespace tessera {

namespace {

using Combine = ParameterSharding::Combine;

[[noreturn]] void bad_ranks(const ShardingRequest& request, const std::string& table, const std::string& what) {
  fail(Code::kInvalidArgument, "table ", table, ", ", request.sharding_type, ": ", what);
}

std::vector<int> all_ranks(const Topology& topology) {
  std::vector<int> out(static_cast<size_t>(topology.world_size));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<int> ranks_of_host(int host, const Topology& topology) {
  std::vector<int> out(static_cast<size_t>(topology.local_world_size));
  std::iota(out.begin(), out.end(), host * topology.local_world_size);
  return out;
}

// The hosts of these ranks, each listed once, in order of appearance.
std::vector<int> hosts_of(const std::vector<int>& ranks, const Topology& topology) {
  std::vector<int> out;
  for (const int r : ranks) {
    const int host = r / topology.local_world_size;
    if (std::find(out.begin(), out.end(), host) == out.end()) out.push_back(host);
  }
  return out;
}

// Returns the rank of each rectangle of the layout.
std::vector<int> place(const Layout& layout, const ShardingRequest& request, const std::string& table,
                       const Topology& topology) {
  std::vector<int> ranks = request.ranks.empty() ? all_ranks(topology) : request.ranks;
  for (const int r : ranks) {
    if (r < 0 || r >= topology.world_size) {
      bad_ranks(request, table, str_cat("rank ", r, " is outside the world of ", topology.world_size));
    }
  }
  const auto local = static_cast<size_t>(topology.local_world_size);
  std::vector<int> hosts = hosts_of(ranks, topology);
  switch (layout.placement) {
    case TSR_PLACE_EVERY_RANK:
      if (ranks != all_ranks(topology)) bad_ranks(request, table, "it must be on all ranks, in order");
      break;
    case TSR_PLACE_ONE_HOST:
    case TSR_PLACE_IN_HOST:
      if (!request.ranks.empty() && hosts.size() != 1) bad_ranks(request, table, "all its ranks must be of one host");
      if (layout.placement == TSR_PLACE_ONE_HOST || request.ranks.size() <= 1) {
        ranks = ranks_of_host(hosts.front(), topology);
      }
      break;
    case TSR_PLACE_HOSTS: {
      ranks.clear();
      for (const int h : hosts) {
        const std::vector<int> of_host = ranks_of_host(h, topology);
        ranks.insert(ranks.end(), of_host.begin(), of_host.end());
      }
      if (layout.rectangles.size() / local < hosts.size() && !request.ranks.empty()) {
        bad_ranks(request, table,
                  str_cat("it has ", layout.rectangles.size() / local, " column blocks for ", hosts.size(),
                          " hosts; choose a smaller min_partition or fewer hosts"));
      }
      break;
    }
    default:
      break;
  }
  std::vector<int> out(layout.rectangles.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = ranks[i % ranks.size()];
  return out;
}

// The least width of a column shard, so that a table has at most request.pieces of them. 0: the sharder's default.
int64_t min_partition_of(const ShardingRequest& request, const EmbeddingBagConfig& table) {
  if (request.pieces <= 0 || request.min_partition > 0) return request.min_partition;
  return std::max<int64_t>(1, table.embedding_dim / request.pieces);
}

// The number of different column ranges.
int64_t column_pieces(const Layout& layout) {
  std::vector<int64_t> cols;
  for (const tsr_rectangle& r : layout.rectangles) cols.push_back(r.col);
  std::sort(cols.begin(), cols.end());
  return std::unique(cols.begin(), cols.end()) - cols.begin();
}

ParameterSharding make(Sharders& sharders, const EmbeddingBagConfig& table, const ShardingRequest& request,
                       const Topology& topology) {
  const std::vector<Layout> layouts =
      sharders.propose(request.sharding_type, table, {min_partition_of(request, table), 0});
  if (layouts.empty()) {
    fail(Code::kFailedPrecondition, "sharder ", request.sharding_type, " cannot shard table ", table.name, " of ",
         table.num_embeddings, " x ", table.embedding_dim);
  }
  const Layout& layout = layouts.front();
  if (request.pieces > 0 && column_pieces(layout) != request.pieces) {
    fail(Code::kInvalidArgument, "table ", table.name, ": its ", table.embedding_dim,
         " columns cannot be divided into ", request.pieces,
         " shards of equal width that is a multiple of 4; choose another number of ranks");
  }
  const std::vector<int> ranks = place(layout, request, table.name, topology);
  ParameterSharding out{.sharding_type = request.sharding_type,
                        .combine = static_cast<Combine>(layout.combine),
                        .routed = layout.routed,
                        .cookie = layout.cookie};
  out.compute_kernel = !request.compute_kernel.empty()         ? request.compute_kernel
                       : out.combine == Combine::kDataParallel ? TSR_COMPUTE_DENSE
                                                               : TSR_COMPUTE_FUSED;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const tsr_rectangle& r = layout.rectangles[i];
    out.shards.push_back({r.rows, r.cols, r.row, r.col, ranks[i], layout.is_replicated(i)});
  }
  return out;
}

ShardingRequest request_for(const char* sharding_type, std::vector<int> ranks = {}, int64_t pieces = 0) {
  return {.sharding_type = sharding_type, .ranks = std::move(ranks), .pieces = pieces};
}

}  // namespace

ShardingRequest table_wise(int rank) { return request_for("table_wise", {rank}); }

ShardingRequest row_wise() { return request_for("row_wise"); }

ShardingRequest column_wise(std::vector<int> ranks) {
  const auto pieces = static_cast<int64_t>(ranks.size());
  return request_for("column_wise", std::move(ranks), pieces);
}

ShardingRequest table_row_wise(int host, const Topology& topology) {
  return request_for("table_row_wise", ranks_of_host(host, topology));
}

ShardingRequest table_column_wise(std::vector<int> ranks) {
  const auto pieces = static_cast<int64_t>(ranks.size());
  return request_for("table_column_wise", std::move(ranks), pieces);
}

ShardingRequest grid_shard(const std::vector<int>& hosts, const Topology& topology) {
  std::vector<int> ranks;
  for (const int h : hosts) ranks.push_back(h * topology.local_world_size);
  return request_for("grid_shard", std::move(ranks), static_cast<int64_t>(hosts.size()));
}

ShardingRequest data_parallel() { return request_for("data_parallel"); }

ParameterSharding make_sharding(const Runtime& runtime, const EmbeddingBagConfig& table, const ShardingRequest& request,
                                const Topology& topology) {
  Sharders sharders(runtime, topology);
  return make(sharders, table, request, topology);
}

EmbeddingModuleShardingPlan construct_module_sharding_plan(const Runtime& runtime,
                                                           const std::vector<EmbeddingBagConfig>& tables,
                                                           const std::map<std::string, ShardingRequest>& requests,
                                                           const Topology& topology) {
  Sharders sharders(runtime, topology);
  EmbeddingModuleShardingPlan plan;
  for (const EmbeddingBagConfig& table : tables) {
    const auto found = requests.find(table.name);
    if (found == requests.end()) fail(Code::kInvalidArgument, "no sharding was asked for table ", table.name);
    plan.add(table.name, make(sharders, table, found->second, topology));
  }
  return plan;
}

ParameterSharding completed(const Runtime& runtime, const EmbeddingBagConfig& table, ParameterSharding sharding,
                            const Topology& topology) {
  Sharders sharders(runtime, topology);
  const int64_t width = sharding.shards.empty() ? 0 : sharding.shards.front().cols;
  const std::vector<Layout> layouts = sharders.propose(sharding.sharding_type, table, {width, 0});
  if (layouts.empty()) {
    fail(Code::kInvalidArgument, "table ", table.name, ": sharder ", sharding.sharding_type, " does not shard it");
  }
  sharding.combine = static_cast<Combine>(layouts.front().combine);
  sharding.routed = layouts.front().routed;
  sharding.cookie = layouts.front().cookie;
  if (sharding.combine == Combine::kDataParallel) {
    sharding.shards.clear();
    for (const int r : all_ranks(topology)) {
      sharding.shards.push_back({table.num_embeddings, table.embedding_dim, 0, 0, r});
    }
    return sharding;
  }
  if (layouts.front().num_replicated > 0)
    fail(Code::kUnimplemented, "table ", table.name, ": sharder ", sharding.sharding_type,
         " replicates some rows and shards the others, which a list of shards cannot express: use a plan");
  std::vector<tsr_rectangle> pieces;
  for (const ShardMetadata& s : sharding.shards) {
    pieces.push_back({s.row, s.rows, s.col, s.cols});
    if (s.rank < 0 || s.rank >= topology.world_size) {
      fail(Code::kInvalidArgument, "table ", table.name, ": rank ", s.rank, " is outside the world of ",
           topology.world_size);
    }
  }
  const auto why = sharding.routed ? why_not_tiling_routed(pieces, table.num_embeddings, table.embedding_dim)
                                   : why_not_tiling(pieces, table.num_embeddings, table.embedding_dim);
  if (!why.empty()) fail(Code::kInvalidArgument, "table ", table.name, ", ", sharding.sharding_type, ": ", why);
  return sharding;
}

}  // namespace tessera
