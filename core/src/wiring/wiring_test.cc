#include "wiring/wiring.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;

EmbeddingBagConfig table(int64_t rows, int64_t cols) {
  EmbeddingBagConfig t;
  t.name = "t";
  t.num_embeddings = rows;
  t.embedding_dim = cols;
  t.feature_names = {"f"};
  return t;
}

EmbeddingModuleShardingPlan plan_of(const EmbeddingBagConfig& t, std::vector<ShardMetadata> shards,
                                    Combine combine = Combine::kSum) {
  EmbeddingModuleShardingPlan plan;
  plan.add(t.name, {.sharding_type = "test", .combine = combine, .shards = std::move(shards)});
  return plan;
}

Wiring wiring_of(const EmbeddingBagConfig& t, std::vector<ShardMetadata> shards, int world) {
  return {{t}, plan_of(t, std::move(shards)), {1, world}};
}

TEST(Wiring, RowCutsGiveAStreamPerShardAndDropEmptyOnes) {
  const Wiring wiring = wiring_of(table(5, 4), {{2, 4, 0, 0, 0}, {2, 4, 2, 0, 1}, {1, 4, 4, 0, 2}, {0, 4, 5, 0, 3}}, 4);
  ASSERT_EQ(wiring.streams().size(), 3u);
  EXPECT_EQ(wiring.cuts()[0].block, 2);
  EXPECT_EQ(wiring.cuts()[0].begins, (std::vector<int64_t>{0, 2, 4, 5}));
  EXPECT_TRUE(wiring.lanes()[0].first);
  EXPECT_FALSE(wiring.lanes()[1].first);
  EXPECT_EQ(wiring.stream_begin(3), wiring.stream_begin(4));
}

TEST(Wiring, ColumnShardsOnOneRankShareAStream) {
  const Wiring wiring = wiring_of(table(5, 8), {{5, 4, 0, 0, 1}, {5, 4, 0, 4, 1}}, 2);
  EXPECT_EQ(wiring.streams().size(), 1u);
  ASSERT_EQ(wiring.lanes().size(), 2u);
  EXPECT_TRUE(wiring.lanes()[0].first && wiring.lanes()[1].first);
}

TEST(Wiring, BlocksThatDoNotHoldAllRowsAddToZeros) {
  // Rows 0 and 1 whole, the others cut in two by columns.
  const Wiring wiring = wiring_of(table(6, 8), {{2, 8, 0, 0, 0}, {4, 4, 2, 0, 0}, {4, 4, 2, 4, 1}}, 2);
  EXPECT_TRUE(wiring.slots()[0].starts_at_zero);
  for (const Lane& lane : wiring.lanes()) EXPECT_FALSE(lane.first);
}

// A letter for each arrival of each rank, in their order: 's' if it stays, 'm' if it moves.
std::vector<std::string> kept(const Wiring& wiring, const RankWiring::PlacesRows& places_rows) {
  std::vector<std::string> out;
  for (int rank = 0; rank < wiring.world_size(); ++rank) {
    const RankWiring own(wiring, rank, places_rows);
    EXPECT_EQ(static_cast<int>(own.stays.size()), own.num_streams);
    std::string& text = out.emplace_back();
    for (const Arrival& a : own.arrivals) {
      text += a.stays ? 's' : 'm';
      const int stream = wiring.lanes()[a.lane].stream;
      EXPECT_EQ(a.stays, wiring.streams()[stream].rank == rank && own.stays[stream - own.first_stream]);
    }
  }
  return out;
}
bool any_lane(const Lane&) { return true; }

using Marks = std::vector<std::string>;

TEST(Wiring, OwnRowsStayWhereNoSumChangesItsOrder) {
  const EmbeddingBagConfig t = table(6, 8);
  EXPECT_EQ(kept(wiring_of(t, {{6, 8, 0, 0, 1}}, 2), any_lane), (Marks{"m", "s"}));
  EXPECT_EQ(kept(wiring_of(t, {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 1}}, 2), any_lane), (Marks{"sm", "ms"}));
  EXPECT_EQ(kept(wiring_of(t, {{3, 8, 0, 0, 1}, {3, 8, 3, 0, 0}}, 2), any_lane), (Marks{"ms", "sm"}));
  // a + b + c is b + a + c to the last bit, and not c + a + b.
  EXPECT_EQ(kept(wiring_of(t, {{2, 8, 0, 0, 0}, {2, 8, 2, 0, 1}, {2, 8, 4, 0, 2}}, 3), any_lane),
            (Marks{"smm", "msm", "mmm"}));
  // Two pieces of a rank: only one of them can be there first.
  EXPECT_EQ(kept(wiring_of(t, {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 0}}, 1), any_lane), (Marks{"sm"}));
}

TEST(Wiring, RowsThatStayAreSumsThatTheirKernelCanPlace) {
  EmbeddingBagConfig t = table(6, 8);
  const std::vector<ShardMetadata> columns{{6, 4, 0, 0, 0}, {6, 4, 0, 4, 0}};  // one stream
  EXPECT_EQ(kept(wiring_of(t, columns, 1), any_lane), (Marks{"ss"}));
  EXPECT_EQ(kept(wiring_of(t, columns, 1), [](const Lane& lane) { return lane.shard == 0; }), (Marks{"mm"}));
  EXPECT_EQ(kept(wiring_of(t, {{2, 8, 0, 0, 0}, {4, 4, 2, 0, 0}, {4, 4, 2, 4, 0}}, 1), any_lane), (Marks{"mmm"}));
  EXPECT_EQ(kept(wiring_of(t, columns, 1), nullptr), (Marks{"mm"}));
  t.pooling = PoolingType::kMean;
  EXPECT_EQ(kept(wiring_of(t, columns, 1), any_lane), (Marks{"mm"}));
  t.pooling = PoolingType::kSum;
  EXPECT_EQ(kept(Wiring({t}, plan_of(t, columns), {1, 1}, {.sequence = true}), any_lane), (Marks{"mm"}));
}

// Four row shards on two hosts of two ranks: each host gets its own lanes, and the sum of the other's.
TEST(Wiring, AHostGetsItsOwnLanesAndTheSumsOfOthers) {
  const EmbeddingBagConfig t = table(8, 4);
  EmbeddingModuleShardingPlan plan =
      plan_of(t, {{2, 4, 0, 0, 0}, {2, 4, 2, 0, 1}, {2, 4, 4, 0, 2}, {2, 4, 6, 0, 3}}, Combine::kHostSum);
  const Wiring wiring({t}, plan, {2, 2});
  ASSERT_EQ(wiring.host_sums().size(), 2u);
  EXPECT_EQ(wiring.summed_streams(1), (std::vector<int>{2, 3}));
  const auto text = [&](int rank) {
    std::string out;
    for (const Arrival& a : RankWiring(wiring, rank).arrivals)
      out += a.lane >= 0 ? str_cat("lane ", a.lane, a.first ? " first; " : "; ")
                         : str_cat("sum ", a.host_sum, a.first ? " first; " : "; ");
    return out;
  };
  EXPECT_EQ(text(0), "lane 0 first; lane 1; sum 1; ");
  EXPECT_EQ(text(3), "sum 0 first; lane 2; lane 3; ");
  // Rows that are not pooled have nothing to be summed, and one host has nobody to save bytes for.
  EXPECT_TRUE(Wiring({t}, plan, {2, 2}, {.sequence = true}).host_sums().empty());
  EXPECT_TRUE(Wiring({t}, plan, {1, 4}).host_sums().empty());
}

TEST(Wiring, RoutedRowsNeedARouterOnlyToBeRouted) {
  const EmbeddingBagConfig t = table(5, 4);
  EmbeddingModuleShardingPlan plan;
  plan.add("t", {.sharding_type = "test",
                 .combine = Combine::kSum,
                 .routed = true,
                 .shards = {{3, 4, 0, 0, 0}, {2, 4, 0, 0, 1}}});
  const Wiring wiring({t}, plan, {1, 2});
  ASSERT_EQ(wiring.cuts().size(), 1u);
  EXPECT_TRUE(wiring.cuts()[0].routed);
  EXPECT_FALSE(wiring.cuts()[0].router);
  EXPECT_FALSE(wiring.cuts()[0].copies());
  EXPECT_EQ(wiring.streams().size(), 2u);
}

TEST(Wiring, RefusesWhatDoesNotTile) {
  const auto refusal = [](std::vector<ShardMetadata> shards, int world) -> std::string {
    try {
      wiring_of(table(6, 8), std::move(shards), world);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal({{3, 8, 0, 0, 0}}, 2).find("table \"t\""), std::string::npos);
  EXPECT_NE(refusal({{3, 8, 0, 0, 0}, {4, 8, 2, 0, 1}}, 2), "accepted");
  EXPECT_NE(refusal({{6, 8, 0, 0, 2}}, 2).find("rank 2"), std::string::npos);
  EXPECT_EQ(refusal({{6, 8, 0, 0, 1}}, 2), "accepted");
}

}  // namespace
}  // namespace tessera
