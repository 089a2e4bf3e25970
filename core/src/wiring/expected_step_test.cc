#include "wiring/expected_step.h"

#include <gtest/gtest.h>

#include <map>

#include "modules/test_table.h"
#include "wiring/messages.h"

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;
using test::table;

Wiring wiring_of(const EmbeddingBagConfig& t, std::vector<ShardMetadata> shards, HostGrid hosts, bool sequence = false,
                 Combine combine = Combine::kSum) {
  EmbeddingModuleShardingPlan plan;
  plan.add(t.name, {.sharding_type = "test", .combine = combine, .shards = std::move(shards)});
  return {{t}, plan, hosts, {.sequence = sequence}};
}

// Adds up what a rank is said to do.
struct Account : StepVisitor {
  explicit Account(const Wiring& wiring, int rank, ExpectedTableFeature feature, bool places_rows = false) {
    const RankWiring own(wiring, rank, [=](const RowRoute&) { return places_rows; });
    ExpectedStep(wiring, std::vector<ExpectedTableFeature>(wiring.table_features().size(), feature)).visit(own, *this);
  }
  void ids(const IdRoute& id_route, const ExpectedIdBlock& id_block) override { id_blocks[id_route.rank] = id_block; }
  void payload(int owner, double bytes) override { payloads[owner] = bytes; }
  void rows_to(int home, const RowHop& hop) override { to[home] += 4 * hop.elements(); }
  void rows_from(int owner, const RowHop& hop) override { from[owner] += 4 * hop.elements(); }
  void put_together(int64_t cols, const ExpectedIdBlock& id_block) override {
    put.push_back(id_block.rows * static_cast<double>(cols));
  }

  std::map<int, ExpectedIdBlock> id_blocks;
  std::map<int, double> payloads, to, from;
  std::vector<double> put;  // elements
};

using Bytes = std::map<int, double>;

TEST(ExpectedStep, AWholeTableIsAskedByAllAndAnswersAll) {
  const Wiring wiring = wiring_of(table(50, 4), {{50, 4, 0, 0, 0}}, {1, 2});
  const ExpectedTableFeature feature{.bags = 10, .ids = 30};
  const Account owner(wiring, 0, feature), home(wiring, 1, feature);
  EXPECT_EQ(home.payloads, (Bytes{{0, 30 * 8 + 11 * 4 + 4}}));  // padded to 8
  EXPECT_EQ(owner.payloads, (Bytes{{1, 0}}));                   // nothing but its header
  EXPECT_EQ(owner.to, (Bytes{{1, 10 * 4 * 4}}));
  EXPECT_EQ(home.from, (Bytes{{0, 10 * 4 * 4}}));
  EXPECT_EQ(home.put, std::vector<double>{40});
  EXPECT_EQ(owner.put, std::vector<double>{40});
  EXPECT_TRUE(Account(wiring, 0, feature, true).put.empty());  // its rows are local
  EXPECT_EQ(Account(wiring, 1, {.bags = 10, .ids = 30, .weighted = true}).payloads, (Bytes{{0, 30 * 12 + 11 * 4 + 4}}));
}

TEST(ExpectedStep, BagsWithoutIdsInAPartOfTheRowsHaveNoRow) {
  const Wiring wiring = wiring_of(table(40, 4), {{30, 4, 0, 0, 0}, {10, 4, 30, 0, 1}}, {1, 2});
  const Account home(wiring, 0, {.bags = 10, .ids = 20});
  EXPECT_DOUBLE_EQ(home.id_blocks.at(1).ids, 5);
  EXPECT_DOUBLE_EQ(home.id_blocks.at(1).full_bags, 10 * (1 - 0.75 * 0.75));
  EXPECT_DOUBLE_EQ(home.id_blocks.at(0).uncertain_bags(), 10 * 0.25 * 0.25);
  EXPECT_DOUBLE_EQ(home.from.at(1), 10 * (1 - 0.75 * 0.75) * 16);
  EXPECT_EQ(expected_id_block({.bags = 10}, 0.5, false).rows, 0);  // no ids, no rows
  // A row for each id where rows are not pooled.
  const Wiring sequence = wiring_of(table(40, 4), {{30, 4, 0, 0, 0}, {10, 4, 30, 0, 1}}, {1, 2}, true);
  EXPECT_DOUBLE_EQ(Account(sequence, 0, {.bags = 10, .ids = 20}).from.at(1), 5 * 16);
}

TEST(ExpectedStep, RowsThatRepeatTravelOnce) {
  const std::vector<ShardMetadata> shards{{20, 4, 0, 0, 0}, {20, 4, 20, 0, 1}};
  const Wiring sequence = wiring_of(table(40, 4), shards, {1, 2}, true);
  const Account home(sequence, 0, {.bags = 10, .ids = 200, .distinct = 0.25});
  EXPECT_EQ(home.payloads, (Bytes{{1, 25 * 8 + 2 * 4}}));  // one bag, and how many there are
  EXPECT_EQ(home.from, (Bytes{{1, 25 * 16}}));
  EXPECT_EQ(home.to, home.from);
  EXPECT_EQ(home.put, (std::vector<double>{400, 400}));  // in all their places
  const Wiring pooled = wiring_of(table(40, 4), shards, {1, 2});
  EXPECT_EQ(Account(pooled, 0, {.bags = 200, .ids = 200, .distinct = 0.25}).from, (Bytes{{1, 25 * 16}}));
  // Not if their host adds them up.
  const Wiring summed = wiring_of(table(40, 4), shards, {2, 2}, false, Combine::kHostSum);
  const auto rows = [&](double distinct) {
    return Account(summed, 0, {.bags = 200, .ids = 200, .distinct = distinct}).to;
  };
  EXPECT_EQ(rows(0.25), rows(1));
}

// Two hosts of two ranks; host 0 holds the table in two ranges of rows.
TEST(ExpectedStep, SumsCrossHostsInPlaceOfRows) {
  const EmbeddingBagConfig t = table(40, 4);
  const std::vector<ShardMetadata> shards{{20, 4, 0, 0, 0}, {20, 4, 20, 0, 1}};
  const Wiring wiring = wiring_of(t, shards, {2, 2}, false, Combine::kHostSum);
  const ExpectedTableFeature feature{.bags = 32, .ids = 64};
  const double route = 32 * 0.75 * 16, sum = 32 * 16;
  const Account owner(wiring, 0, feature);
  EXPECT_EQ(owner.to, (Bytes{{1, 2 * route}, {2, sum}}));  // to its neighbour also the rows for rank 3
  EXPECT_EQ(owner.from, (Bytes{{1, 2 * route}}));
  // Rank 2 tells rank 0 which bags have ids at both row routes: two words each.
  const Account far(wiring, 2, feature);
  EXPECT_EQ(far.payloads.at(0) - far.payloads.at(1), 2 * 2 * 4);
  EXPECT_EQ(far.from, (Bytes{{0, sum}}));
  EXPECT_EQ(far.put, std::vector<double>{sum / 4});
  // Its own two row routes, and those of the sum that it makes for rank 2.
  EXPECT_EQ(owner.put, (std::vector<double>(4, route / 4)));
}

TEST(ExpectedStep, WhatOneSendsTheOtherGets) {
  const Wiring wiring =
      wiring_of(table(40, 8), {{10, 8, 0, 0, 0}, {10, 8, 10, 0, 1}, {20, 4, 20, 0, 2}, {20, 4, 20, 4, 3}}, {2, 2},
                false, Combine::kHostSum);
  const ExpectedTableFeature feature{.bags = 7, .ids = 11};
  for (int a = 0; a < 4; ++a) {
    const Account one(wiring, a, feature);
    for (const auto& [b, bytes] : one.to)
      EXPECT_DOUBLE_EQ(Account(wiring, b, feature).from.at(a), bytes) << a << ' ' << b;
  }
}

}  // namespace
}  // namespace tessera
