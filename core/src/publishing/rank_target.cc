#include "publishing/rank_target.h"

#include <algorithm>

#include "config/json.h"
#include "tessera/error.h"
#include "tessera/layer_graph.h"

namespace tessera::publishing {
namespace {

constexpr const char* kLabel = "followed version";

}  // namespace

void tell(const ProcessGroup& group, const RankTarget& target) {
  std::string plan;
  if (target.plan) {
    ShardingPlan all{.world_size = group.world_size(), .local_world_size = group.local_world_size()};
    all.modules.emplace_back(kCollectionPath, *target.plan);
    plan = all.json();
  }
  const nlohmann::ordered_json text = {{"base", target.base},
                                       {"number", target.number},
                                       {"hash", target.hash},
                                       {"base_hash", target.base_hash},
                                       {"plan", plan}};
  (void)group.all_gather_text(text.dump(), kLabel);
}

RankTarget told(const ProcessGroup& group) {
  const config::JsonSource source{.name = "what rank 0 follows", .code = Code::kDataLoss};
  const std::string text = group.all_gather_text("", kLabel).at(0);
  const auto parsed = config::parse_json(text, source);
  const config::JsonObject said(parsed, source);
  RankTarget out{.base = said.get<int64_t>("base"),
                 .number = said.get<int64_t>("number"),
                 .base_hash = said.get<std::string>("base_hash"),
                 .hash = said.get<std::string>("hash"),
                 .plan = std::nullopt};
  if (const auto plan = said.get<std::string>("plan"); !plan.empty())
    out.plan = ShardingPlan::from_json(plan).at(kCollectionPath);
  return out;
}

KeptRows rows_read(const EmbeddingModuleShardingPlan& plan, int rank, const std::vector<std::string>& whole) {
  KeptRows out;
  for (const auto& [table, sharding] : plan.tables()) {
    // Only its sharder knows which rows are routed to a rank.
    if (sharding.routed || std::find(whole.begin(), whole.end(), table) != whole.end()) continue;
    std::vector<RowRange>& rows = out[table];
    for (const ShardMetadata& shard : sharding.shards) {
      if (shard.rank == rank) rows.push_back({shard.row, shard.row + shard.rows});
    }
    std::sort(rows.begin(), rows.end());
  }
  return out;
}

}  // namespace tessera::publishing
