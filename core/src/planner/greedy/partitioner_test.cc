#include "planner/greedy/partitioner.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tessera/abi/sharder.h"

namespace tessera::greedy {
namespace {

Shard shard(int64_t hbm, double time) {
  Shard s;
  s.rows = s.cols = 1;
  s.storage.hbm = hbm;
  s.perf.fwd_compute = time;
  return s;
}

ShardingOption option(int32_t placement, const std::vector<Shard>& shards) {
  ShardingOption o{.placement = placement};
  for (const Shard& s : shards) {
    o.total_storage += s.storage;
    o.total_perf += s.perf.total();
    o.shards.push_back(s);
  }
  return o;
}

Partition run(const std::vector<ShardingOption>& options, const Topology& topology, int64_t hbm) {
  std::vector<const ShardingOption*> proposal;
  for (const ShardingOption& o : options) proposal.push_back(&o);
  return partition(proposal, topology, {hbm, 0, 0});
}

using Ranks = std::vector<std::vector<int>>;

TEST(Partitioner, LargestFirstOnTheIdlestRank) {
  const Partition p = run({option(TSR_PLACE_ANY_RANK, {shard(1, 1)}), option(TSR_PLACE_ANY_RANK, {shard(3, 2)}),
                           option(TSR_PLACE_ANY_RANK, {shard(2, 5)})},
                          Topology::of(2, 2, "cuda"), 10);
  ASSERT_FALSE(p.failure);
  EXPECT_EQ(p.ranks, (Ranks{{0}, {0}, {1}}));
  EXPECT_EQ(p.perf_rating, 5);
}

TEST(Partitioner, TiesGoToTheFirstLocalRankOfEachHost) {
  std::vector<ShardingOption> options(4, option(TSR_PLACE_ANY_RANK, {shard(1, 1)}));
  EXPECT_EQ(run(options, Topology::of(4, 2, "cuda"), 10).ranks, (Ranks{{0}, {2}, {1}, {3}}));
}

TEST(Partitioner, UniformComesFirstAndMustFitEverywhere) {
  const Topology topology = Topology::of(2, 2, "cuda");
  const std::vector<ShardingOption> options{option(TSR_PLACE_ANY_RANK, {shard(9, 1)}),
                                            option(TSR_PLACE_EVERY_RANK, {shard(2, 9), shard(0, 1)})};
  EXPECT_EQ(run(options, topology, 9).ranks, (Ranks{{1}, {0, 1}}));
  const Partition p = run(options, topology, 8);
  ASSERT_TRUE(p.failure);
  EXPECT_EQ(p.failure->table, 0u);
  EXPECT_EQ(p.failure->rank, 1);
  EXPECT_EQ(p.failure->missing, (Storage{1, 0, 0}));
}

TEST(Partitioner, OneHost) {
  const Topology topology = Topology::of(4, 2, "cuda");
  // Host 0 is busy, so both other options go to host 1: the second one in local order, the third one by load.
  const std::vector<ShardingOption> options{option(TSR_PLACE_ANY_RANK, {shard(6, 9)}),
                                            option(TSR_PLACE_ONE_HOST, {shard(2, 1), shard(3, 1)}),
                                            option(TSR_PLACE_IN_HOST, {shard(1, 1), shard(1, 1), shard(1, 1)})};
  EXPECT_EQ(run(options, topology, 8).ranks, (Ranks{{0}, {2, 3}, {2, 3, 2}}));
}

TEST(Partitioner, AHostThatCannotTakeAllLeavesNoTrace) {
  // Host 0 is idle, but its rank 1 is too full for the second shard, so the first one is removed from rank 0 again.
  const Topology topology = Topology::of(4, 2, "cuda");
  const std::vector<ShardingOption> options{
      option(TSR_PLACE_EVERY_RANK, {shard(0, 0), shard(7, 0), shard(0, 1), shard(0, 1)}),
      option(TSR_PLACE_ONE_HOST, {shard(4, 1), shard(4, 1)}), option(TSR_PLACE_ANY_RANK, {shard(7, 1)})};
  EXPECT_EQ(run(options, topology, 10).ranks, (Ranks{{0, 1, 2, 3}, {2, 3}, {0}}));
}

TEST(Partitioner, WindowsOfHosts) {
  const Topology topology = Topology::of(6, 2, "cuda");
  const auto grid = [](size_t shards) { return option(TSR_PLACE_HOSTS, std::vector<Shard>(shards, shard(1, 1))); };
  EXPECT_EQ(run({grid(4)}, topology, 8).ranks, (Ranks{{0, 1, 2, 3}}));
  EXPECT_EQ(run({grid(8)}, topology, 8).ranks, (Ranks{{0, 1, 2, 3, 4, 5, 0, 1}}));
  // Host 0 is full, so the window of hosts that starts at the next one is taken.
  EXPECT_EQ(
      run({option(TSR_PLACE_EVERY_RANK, {shard(8, 0), shard(8, 0), shard(0, 0), shard(0, 0), shard(0, 0), shard(0, 0)}),
           grid(4)},
          topology, 8)
          .ranks[1],
      (std::vector<int>{2, 3, 4, 5}));
}

TEST(Partitioner, AllowedRanksAreKept) {
  const Topology topology = Topology::of(4, 2, "cuda");
  std::vector<ShardingOption> options(3, option(TSR_PLACE_ANY_RANK, {shard(4, 1), shard(4, 1)}));
  for (ShardingOption& o : options) o.allowed_ranks = {false, true, false, true};
  EXPECT_EQ(run(options, topology, 12).ranks, (Ranks{{1, 3}, {1, 3}, {1, 3}}));
  const Partition full = run(options, topology, 8);
  ASSERT_TRUE(full.failure);
  EXPECT_EQ(full.failure->missing, (Storage{4, 0, 0}));
  EXPECT_EQ(full.failure->rank % 2, 1);
}

// For any proposal, shards are where their placement allows, no rank uses more memory than it has, and the rating is
// the busiest rank's sum.
TEST(Partitioner, RandomProposalsKeepTheRules) {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int placed = 0;
  for (int round = 0; round < 500; ++round) {
    const int local = 1 + below(4), hosts = 1 + below(4), world = local * hosts;
    const Topology topology = Topology::of(world, local, "cuda");
    std::vector<ShardingOption> options;
    for (int t = 1 + below(12); t > 0; --t) {
      constexpr int32_t kPlacements[] = {TSR_PLACE_ANY_RANK, TSR_PLACE_ONE_HOST, TSR_PLACE_IN_HOST,
                                         TSR_PLACE_EVERY_RANK, TSR_PLACE_HOSTS};
      const int32_t placement = kPlacements[below(5)];
      const int count = placement == TSR_PLACE_EVERY_RANK ? world
                        : placement == TSR_PLACE_ONE_HOST ? local
                        : placement == TSR_PLACE_HOSTS    ? local * (1 + below(5))
                                                          : 1 + below(5);
      std::vector<Shard> shards;
      for (int i = 0; i < count; ++i) shards.push_back(shard(below(20), below(100)));
      options.push_back(option(placement, shards));
    }
    const int64_t hbm = 20 + below(120);
    const Partition p = run(options, topology, hbm);
    if (p.failure) continue;
    ++placed;
    std::vector<int64_t> used(static_cast<size_t>(world));
    std::vector<double> time(static_cast<size_t>(world));
    for (size_t t = 0; t < options.size(); ++t) {
      ASSERT_EQ(p.ranks[t].size(), options[t].shards.size());
      std::set<int> on_hosts;
      for (size_t i = 0; i < p.ranks[t].size(); ++i) {
        const int r = p.ranks[t][i];
        ASSERT_TRUE(r >= 0 && r < world);
        on_hosts.insert(r / local);
        used[static_cast<size_t>(r)] += options[t].shards[i].storage.hbm;
        time[static_cast<size_t>(r)] += options[t].shards[i].perf.total();
        if (options[t].placement == TSR_PLACE_EVERY_RANK) {
          EXPECT_EQ(r, static_cast<int>(i));
        }
        if (options[t].placement == TSR_PLACE_ONE_HOST || options[t].placement == TSR_PLACE_HOSTS) {
          EXPECT_EQ(r % local, static_cast<int>(i) % local);
        }
      }
      if (options[t].placement == TSR_PLACE_ONE_HOST || options[t].placement == TSR_PLACE_IN_HOST) {
        EXPECT_EQ(on_hosts.size(), 1u);
      }
    }
    for (const int64_t bytes : used) EXPECT_LE(bytes, hbm);
    EXPECT_EQ(p.perf_rating, *std::max_element(time.begin(), time.end()));
  }
  EXPECT_GT(placed, 100);
}

}  // namespace
}  // namespace tessera::greedy
