#include "distributed/lanes.h"

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

LaneMap map_of(const EmbeddingBagConfig& t, std::vector<ShardMetadata> shards, int world) {
  ParameterSharding sharding;
  sharding.sharding_type = "test";
  sharding.combine = Combine::kSum;
  sharding.shards = std::move(shards);
  EmbeddingModuleShardingPlan plan;
  plan.add(t.name, sharding);
  const Runtime runtime({.plugin_path = {}, .require = {}, .default_path = false});
  return {runtime, {t}, plan, {1, world}, false};
}

TEST(LaneMap, RowCutsGiveAStreamPerShardAndDropEmptyOnes) {
  const LaneMap map = map_of(table(5, 4), {{2, 4, 0, 0, 0}, {2, 4, 2, 0, 1}, {1, 4, 4, 0, 2}, {0, 4, 5, 0, 3}}, 4);
  ASSERT_EQ(map.streams().size(), 3u);
  EXPECT_EQ(map.cuts()[0].block, 2);
  EXPECT_EQ(map.cuts()[0].begins, (std::vector<int64_t>{0, 2, 4, 5}));
  EXPECT_TRUE(map.lanes()[0].first);
  EXPECT_FALSE(map.lanes()[1].first);
  EXPECT_EQ(map.stream_begin(3), map.stream_begin(4));
}

TEST(LaneMap, ColumnShardsOnOneRankShareAStream) {
  const LaneMap map = map_of(table(5, 8), {{5, 4, 0, 0, 1}, {5, 4, 0, 4, 1}}, 2);
  EXPECT_EQ(map.streams().size(), 1u);
  ASSERT_EQ(map.lanes().size(), 2u);
  EXPECT_TRUE(map.lanes()[0].first && map.lanes()[1].first);
}

TEST(LaneMap, BlocksThatDoNotHoldAllRowsAddToZeros) {
  // Rows 0 and 1 whole, the others cut in two by columns.
  const LaneMap map = map_of(table(6, 8), {{2, 8, 0, 0, 0}, {4, 4, 2, 0, 0}, {4, 4, 2, 4, 1}}, 2);
  EXPECT_TRUE(map.slots()[0].starts_at_zero);
  for (const Lane& lane : map.lanes()) EXPECT_FALSE(lane.first);
}

// By rank, for each of its arrivals in their order: 's' where it stays, 'm' where it moves.
std::vector<std::string> kept(const LaneMap& map, const std::function<bool(const Lane&)>& can) {
  std::vector<std::string> out;
  for (int rank = 0; rank < map.world_size(); ++rank) {
    std::vector<Arrival> arrivals = map.arrivals(rank);
    const std::vector<bool> stays = map.keep_own(rank, can, arrivals);
    EXPECT_EQ(static_cast<int>(stays.size()), map.stream_begin(rank + 1) - map.stream_begin(rank));
    std::string& text = out.emplace_back();
    for (const Arrival& a : arrivals) {
      text += a.stays ? 's' : 'm';
      const Stream& stream = map.streams()[map.lanes()[a.lane].stream];
      EXPECT_EQ(a.stays, stream.rank == rank && stays[map.lanes()[a.lane].stream - map.stream_begin(rank)]);
    }
  }
  return out;
}
bool any_lane(const Lane&) { return true; }

using Marks = std::vector<std::string>;

TEST(LaneMap, OwnRowsStayWhereNoSumChangesItsOrder) {
  const EmbeddingBagConfig t = table(6, 8);
  EXPECT_EQ(kept(map_of(t, {{6, 8, 0, 0, 1}}, 2), any_lane), (Marks{"m", "s"}));
  EXPECT_EQ(kept(map_of(t, {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 1}}, 2), any_lane), (Marks{"sm", "ms"}));
  EXPECT_EQ(kept(map_of(t, {{3, 8, 0, 0, 1}, {3, 8, 3, 0, 0}}, 2), any_lane), (Marks{"ms", "sm"}));
  // a + b + c is b + a + c to the last bit, and not c + a + b.
  EXPECT_EQ(kept(map_of(t, {{2, 8, 0, 0, 0}, {2, 8, 2, 0, 1}, {2, 8, 4, 0, 2}}, 3), any_lane),
            (Marks{"smm", "msm", "mmm"}));
  // Two pieces of a rank: only one of them can be there first.
  EXPECT_EQ(kept(map_of(t, {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 0}}, 1), any_lane), (Marks{"sm"}));
}

TEST(LaneMap, RowsThatStayAreSumsThatTheirKernelCanPlace) {
  EmbeddingBagConfig t = table(6, 8);
  const std::vector<ShardMetadata> columns{{6, 4, 0, 0, 0}, {6, 4, 0, 4, 0}};  // one stream
  EXPECT_EQ(kept(map_of(t, columns, 1), any_lane), (Marks{"ss"}));
  EXPECT_EQ(kept(map_of(t, columns, 1), [](const Lane& lane) { return lane.shard == 0; }), (Marks{"mm"}));
  EXPECT_EQ(kept(map_of(t, {{2, 8, 0, 0, 0}, {4, 4, 2, 0, 0}, {4, 4, 2, 4, 0}}, 1), any_lane), (Marks{"mmm"}));
  t.pooling = PoolingType::kMean;
  EXPECT_EQ(kept(map_of(t, columns, 1), any_lane), (Marks{"mm"}));
}

TEST(LaneMap, RefusesWhatDoesNotTile) {
  const auto refusal = [](std::vector<ShardMetadata> shards, int world) -> std::string {
    try {
      map_of(table(6, 8), std::move(shards), world);
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
