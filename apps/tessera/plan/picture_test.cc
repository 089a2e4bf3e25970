// Tests the page of a plan: the bytes and times of shards, and what is at the top.
#include "plan/picture.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::cli {
namespace {

Shard shard(int64_t rows, int64_t row, int64_t ddr, double ms) {
  Shard s{.rows = rows, .cols = 16, .row = row};
  s.storage.ddr = ddr;
  s.perf.fwd_compute = ms;
  return s;
}

// Adds a table whose n-th shard is on rank n.
void add_table(PlanResult& r, const std::string& path, const std::string& name, const std::vector<Shard>& shards) {
  ShardingOption o{.path = path, .name = name, .sharding_type = "row_wise", .compute_kernel = "fused"};
  for (const Shard& s : shards) o.shards.push_back(s);
  ParameterSharding sharding{"row_wise", "fused", ParameterSharding::Combine::kSum, false, {}};
  for (const Shard& s : shards)
    sharding.shards.push_back({s.rows, s.cols, s.row, s.col, static_cast<int>(sharding.shards.size())});
  EmbeddingModuleShardingPlan module;
  module.add(name, sharding);
  r.plan.modules.emplace_back(path, module);
  r.space.first.push_back(r.space.options.size());
  r.chosen.push_back(r.space.options.size());
  r.space.options.push_back(o);
}

TEST(PlanPage, ShardsHaveTheirBytesAndTimes) {
  PlanResult r{.topology = Topology::of(4, 2, "cpu")};
  r.plan.world_size = 4;
  r.plan.local_world_size = 2;
  r.rank_perf = {0.75, 0.25, 0, 0};
  r.rank_storage.resize(4);
  r.rank_storage[1].ddr = 3 << 20;
  r.reserved.per_rank.resize(4);
  add_table(r, "sparse", "film", {shard(50, 0, 3000, 0.75), shard(50, 50, 1000, 0.25)});
  add_table(r, "other", "film", {shard(10, 0, 500, 0.5)});
  r.space.first.push_back(r.space.options.size());
  const PageParts parts = plan_page(r);
  EXPECT_EQ(parts[0]["facts"], PageParts::array({{"2 hosts, cpu", "4 ranks"},
                                                 {"in the plan", "2 tables"},
                                                 {"memory of the fullest rank", 3 << 20, "bytes"},
                                                 {"predicted time of the slowest rank", 750, "us"}}));
  const PageParts& modules = parts[1]["plan"]["modules"];
  const PageParts& film = modules[0]["tables"][0];
  EXPECT_EQ(film["shards"][1]["bytes"], 1000);
  EXPECT_EQ(film["shards"][0]["us"], 750.0);
  EXPECT_EQ(film["shards"][1]["offsets"], PageParts({50, 0}));
  EXPECT_EQ(modules[1]["tables"][0]["shards"][0]["bytes"], 500);
}

TEST(PlanPage, NoTablesAreAPageToo) {
  PlanResult r{.topology = Topology::of(256, 8, "cuda")};
  r.rank_perf.resize(256);
  r.rank_storage.resize(256);
  EXPECT_EQ(plan_page(r)[0]["facts"][0], PageParts({"32 hosts, cuda", "256 ranks"}));
}

}  // namespace
}  // namespace tessera::cli
