#include "wiring/wiring.h"

#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "modules/test_table.h"
namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;
using test::table;

EmbeddingModuleShardingPlan plan_of(const EmbeddingBagConfig& t, std::vector<ShardMetadata> shards,
                                    Combine combine = Combine::kSum) {
  EmbeddingModuleShardingPlan plan;
  plan.add(t.name, {.sharding_type = "test", .combine = combine, .shards = std::move(shards)});
  return plan;
}

Wiring wiring_of(const EmbeddingBagConfig& t, std::vector<ShardMetadata> shards, int world) {
  return {{t}, plan_of(t, std::move(shards)), {1, world}};
}

TEST(Wiring, ARowSplitGivesAnIdRoutePerShardAndDropsEmptyOnes) {
  const Wiring wiring = wiring_of(table(5, 4), {{2, 4, 0, 0, 0}, {2, 4, 2, 0, 1}, {1, 4, 4, 0, 2}, {0, 4, 5, 0, 3}}, 4);
  ASSERT_EQ(wiring.id_routes().size(), 3u);
  EXPECT_EQ(wiring.row_splits()[0].block, 2);
  EXPECT_EQ(wiring.row_splits()[0].begins, (std::vector<int64_t>{0, 2, 4, 5}));
  EXPECT_TRUE(wiring.row_routes()[0].first);
  EXPECT_FALSE(wiring.row_routes()[1].first);
  EXPECT_EQ(wiring.id_route_begin(3), wiring.id_route_begin(4));
}

TEST(Wiring, ColumnShardsOnOneRankShareAnIdRoute) {
  const Wiring wiring = wiring_of(table(5, 8), {{5, 4, 0, 0, 1}, {5, 4, 0, 4, 1}}, 2);
  EXPECT_EQ(wiring.id_routes().size(), 1u);
  ASSERT_EQ(wiring.row_routes().size(), 2u);
  EXPECT_TRUE(wiring.row_routes()[0].first && wiring.row_routes()[1].first);
}

TEST(Wiring, BlocksThatDoNotHoldAllRowsAddToZeros) {
  // Rows 0 and 1 whole, the others split in two by columns.
  const Wiring wiring = wiring_of(table(6, 8), {{2, 8, 0, 0, 0}, {4, 4, 2, 0, 0}, {4, 4, 2, 4, 1}}, 2);
  EXPECT_TRUE(wiring.table_features()[0].starts_at_zero);
  for (const RowRoute& row_route : wiring.row_routes()) EXPECT_FALSE(row_route.first);
}

// A letter for each arrival of each rank, in their order: 'l' if its rows are local, 'm' if they move.
std::vector<std::string> marks_of(const Wiring& wiring, const RankWiring::PlacesRows& places_rows) {
  std::vector<std::string> out;
  for (int rank = 0; rank < wiring.world_size(); ++rank) {
    const RankWiring own(wiring, rank, places_rows);
    EXPECT_EQ(static_cast<int>(own.local_rows.size()), own.num_id_routes);
    std::string& text = out.emplace_back();
    for (const Arrival& a : own.arrivals) {
      text += a.is_local ? 'l' : 'm';
      const int id_route = wiring.row_routes()[a.row_route].id_route;
      EXPECT_EQ(a.is_local, wiring.id_routes()[id_route].rank == rank && own.local_rows[id_route - own.first_id_route]);
    }
  }
  return out;
}
bool any_route(const RowRoute&) { return true; }

using Marks = std::vector<std::string>;

TEST(Wiring, OwnRowsAreLocalWhereNoSumChangesItsOrder) {
  const EmbeddingBagConfig t = table(6, 8);
  EXPECT_EQ(marks_of(wiring_of(t, {{6, 8, 0, 0, 1}}, 2), any_route), (Marks{"m", "l"}));
  EXPECT_EQ(marks_of(wiring_of(t, {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 1}}, 2), any_route), (Marks{"lm", "ml"}));
  EXPECT_EQ(marks_of(wiring_of(t, {{3, 8, 0, 0, 1}, {3, 8, 3, 0, 0}}, 2), any_route), (Marks{"ml", "lm"}));
  // a + b + c is b + a + c to the last bit, and not c + a + b.
  EXPECT_EQ(marks_of(wiring_of(t, {{2, 8, 0, 0, 0}, {2, 8, 2, 0, 1}, {2, 8, 4, 0, 2}}, 3), any_route),
            (Marks{"lmm", "mlm", "mmm"}));
  // Two shards on one rank: only one of them can be there first.
  EXPECT_EQ(marks_of(wiring_of(t, {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 0}}, 1), any_route), (Marks{"lm"}));
}

TEST(Wiring, LocalRowsAreSumsThatTheirKernelCanPlace) {
  EmbeddingBagConfig t = table(6, 8);
  const std::vector<ShardMetadata> columns{{6, 4, 0, 0, 0}, {6, 4, 0, 4, 0}};  // one id route
  EXPECT_EQ(marks_of(wiring_of(t, columns, 1), any_route), (Marks{"ll"}));
  EXPECT_EQ(marks_of(wiring_of(t, columns, 1), [](const RowRoute& r) { return r.shard == 0; }), (Marks{"mm"}));
  EXPECT_EQ(marks_of(wiring_of(t, {{2, 8, 0, 0, 0}, {4, 4, 2, 0, 0}, {4, 4, 2, 4, 0}}, 1), any_route), (Marks{"mmm"}));
  EXPECT_EQ(marks_of(wiring_of(t, columns, 1), nullptr), (Marks{"mm"}));
  t.pooling = PoolingType::kMean;
  EXPECT_EQ(marks_of(wiring_of(t, columns, 1), any_route), (Marks{"mm"}));
  t.pooling = PoolingType::kSum;
  EXPECT_EQ(marks_of(Wiring({t}, plan_of(t, columns), {1, 1}, {.sequence = true}), any_route), (Marks{"mm"}));
}

// Four row shards on two hosts of two ranks: each host gets its own row routes, and the sum of the other's.
TEST(Wiring, AHostGetsItsOwnRowRoutesAndTheSumsOfOthers) {
  const EmbeddingBagConfig t = table(8, 4);
  EmbeddingModuleShardingPlan plan =
      plan_of(t, {{2, 4, 0, 0, 0}, {2, 4, 2, 0, 1}, {2, 4, 4, 0, 2}, {2, 4, 6, 0, 3}}, Combine::kHostSum);
  const Wiring wiring({t}, plan, {2, 2});
  ASSERT_EQ(wiring.host_sums().size(), 2u);
  EXPECT_EQ(wiring.summed_routes(1), (std::vector<int>{2, 3}));
  const auto text = [&](int rank) {
    std::string out;
    for (const Arrival& a : RankWiring(wiring, rank).arrivals)
      out += a.row_route >= 0 ? str_cat("route ", a.row_route, a.first ? " first; " : "; ")
                              : str_cat("sum ", a.host_sum, a.first ? " first; " : "; ");
    return out;
  };
  EXPECT_EQ(text(0), "route 0 first; route 1; sum 1; ");
  EXPECT_EQ(text(3), "sum 0 first; route 2; route 3; ");
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
  ASSERT_EQ(wiring.row_splits().size(), 1u);
  EXPECT_TRUE(wiring.row_splits()[0].routed);
  EXPECT_FALSE(wiring.row_splits()[0].router);
  EXPECT_FALSE(wiring.row_splits()[0].is_whole());
  EXPECT_EQ(wiring.id_routes().size(), 2u);
}

TEST(Wiring, RefusesWhatDoesNotTile) {
  const auto refusal = [](std::vector<ShardMetadata> shards, int world) -> std::string {
    return test::refusal([&] { wiring_of(table(6, 8), std::move(shards), world); }, "accepted");
  };
  EXPECT_NE(refusal({{3, 8, 0, 0, 0}}, 2).find("table \"t\""), std::string::npos);
  EXPECT_NE(refusal({{3, 8, 0, 0, 0}, {4, 8, 2, 0, 1}}, 2), "accepted");
  EXPECT_NE(refusal({{6, 8, 0, 0, 2}}, 2).find("rank 2"), std::string::npos);
  EXPECT_EQ(refusal({{6, 8, 0, 0, 1}}, 2), "accepted");
}

}  // namespace
}  // namespace tessera
