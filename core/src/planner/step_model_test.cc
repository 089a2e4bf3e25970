#include "tessera/step_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/test_refusal.h"
#include "modules/test_table.h"
#include "planner/reuse.h"
#include "planner/workload.h"
#include "tessera/planner.h"
#include "tessera/sharding.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class StepModelTest : public ::testing::Test {
 protected:
  static PlannerModule module_of(int tables, int64_t rows, int64_t dim) {
    PlannerModule m{"sparse", PlannerModule::Kind::kEmbeddingBagCollection, {}, 0};
    for (int t = 0; t < tables; ++t) {
      EmbeddingBagConfig c{.name = str_cat("t", t), .num_embeddings = rows, .embedding_dim = dim};
      m.tables.push_back(c);
    }
    m.tables = validated(std::move(m.tables));
    return m;
  }

  // Figures that are easy to add up: 1 us a lookup, 3 us an update, 1 ns a byte between ranks.
  static Machine simple() {
    Machine m = Machine::typical("cpu");
    m.route = {};
    m.unpack = {};
    m.combine = m.split = {};
    m.data_parallel = {};
    m.dense.forward = m.dense.backward = {};
    m.dense.update = {};
    KernelFigures k;  // has no plugin, because the test's runtime has no kernel
    k.rows = {{64, 1e6, 1e-6, 3e-6, 1e-6, 0, 0}, {128, 1e6, 2e-6, 6e-6, 1e-6, 0, 0}};
    m.kernels = {k};
    m.intra_host = LinkFigures{"test", 2, Curve({{1, 1e-9}, {1e9, 1}}), Curve({{1, 1e-9}, {1e9, 1}})};
    m.inter_host = LinkFigures{"test", 2, Curve({{1, 1e-8}, {1e9, 10}}), Curve({{1, 1e-8}, {1e9, 10}})};
    return m;
  }

  static ShardingPlan plan_of(const PlannerModule& m, const Topology& topology, int rank_of_first,
                              ParameterSharding::Combine combine = ParameterSharding::Combine::kConcat) {
    ShardingPlan plan{.world_size = topology.world_size, .local_world_size = topology.local_world_size};
    EmbeddingModuleShardingPlan tables;
    for (size_t t = 0; t < m.tables.size(); ++t) {
      const EmbeddingBagConfig& c = m.tables[t];
      ParameterSharding s{"test", "fused", combine, false, {}};
      if (combine == ParameterSharding::Combine::kDataParallel) {
        s.compute_kernel = "dense";
        for (int r = 0; r < topology.world_size; ++r) s.shards.push_back({c.num_embeddings, c.embedding_dim, 0, 0, r});
      } else {
        const int rank = (rank_of_first + static_cast<int>(t)) % topology.world_size;
        s.shards.push_back({c.num_embeddings, c.embedding_dim, 0, 0, rank});
      }
      tables.add(c.name, s);
    }
    plan.modules = {{m.path, tables}};
    return plan;
  }

  PlannerOptions options(int world, int local) const {
    return {.topology = Topology::of(world, local, "cpu"), .batch_size = 100, .machine = simple()};
  }

  Runtime runtime_{RuntimeOptions{.default_path = false}};
};

double stage(const StepPrediction& p, size_t rank, const std::string& name) {
  for (const auto& [stage, seconds] : p.stages[rank]) {
    if (stage == name) return seconds;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST_F(StepModelTest, OneRankLooksUpAndUpdatesAllIds) {
  const PlannerModule m = module_of(1, 1 << 20, 16);
  const PlannerOptions o = options(1, 1);
  const StepPrediction p = predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0));
  EXPECT_EQ(p.kernel, "");
  EXPECT_NEAR(stage(p, 0, "lookup"), 100e-6, 1e-9);
  EXPECT_NEAR(stage(p, 0, "table update"), 300e-6, 1e-7);  // nearly all rows are different
  EXPECT_EQ(stage(p, 0, "exchange rows"), 0);
  EXPECT_NEAR(p.seconds, 400e-6, 1e-7);
  ASSERT_EQ(p.tables.size(), 1u);
  EXPECT_EQ(p.tables[0].name, "t0");
  EXPECT_NEAR(p.tables[0].lookup[0], 100e-6, 1e-9);
}

TEST_F(StepModelTest, RepeatedRowsAreUpdatedOnce) {
  const PlannerModule m = module_of(1, 4, 16);
  const PlannerOptions o = options(1, 1);
  const StepPrediction p = predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0));
  EXPECT_NEAR(stage(p, 0, "table update"), 4 * 3e-6 + 96e-6, 1e-7);
}

TEST_F(StepModelTest, WhatTheTransportMakesOfRowsIsWhatCrosses) {
  const PlannerModule m = module_of(3, 1 << 20, 16);
  PlannerOptions o = options(2, 2);
  const ShardingPlan plan = plan_of(m, o.topology, 0);
  const StepPrediction exact = predict_step(runtime_, o, {m}, plan);
  o.wire = [](bool gradients, int64_t elements, int64_t row_elements) {
    EXPECT_EQ(row_elements, 16);
    return gradients ? elements : 2 * elements;
  };
  const StepPrediction less = predict_step(runtime_, o, {m}, plan);
  EXPECT_NEAR(stage(less, 0, "exchange rows"), stage(exact, 0, "exchange rows") / 2, 1e-12);
  EXPECT_NEAR(stage(less, 0, "exchange gradients"), stage(exact, 0, "exchange gradients") / 4, 1e-12);
  EXPECT_EQ(stage(less, 0, "exchange ids"), stage(exact, 0, "exchange ids"));
  EXPECT_NEAR(exact.tables[1].bytes[1] - less.tables[1].bytes[1], 100 * 16 * (2 + 3), 1e-6);
  EXPECT_LT(less.seconds, exact.seconds);
}

TEST_F(StepModelTest, TheBusiestRankDecidesAndOthersWait) {
  const PlannerModule m = module_of(3, 1 << 20, 16);
  const PlannerOptions o = options(2, 2);
  const StepPrediction p = predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0));  // two tables on rank 0
  EXPECT_NEAR(stage(p, 0, "lookup"), 2 * 200e-6, 1e-8);
  EXPECT_NEAR(stage(p, 1, "lookup"), 200e-6, 1e-8);
  // Rank 0 sends the rows of two tables to the other rank: 2 * 100 bags * 16 floats.
  EXPECT_NEAR(stage(p, 1, "exchange rows"), 2 * 100 * 64 * 1e-9, 1e-9);
  EXPECT_GT(p.seconds, 2 * 200e-6 + 3 * 2 * 200e-6 * 0.99);
}

TEST_F(StepModelTest, RowsOfARanksOwnShardsAreNotCopied) {
  PlannerModule m = module_of(2, 1 << 20, 16);
  PlannerOptions o = options(2, 2);
  o.machine->combine = o.machine->split = {{.bytes = 1e-9}};
  const auto predicted = [&] { return predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0)); };
  const double table = 100 * 64 * 1e-9;
  for (const char* name : {"combine", "split"}) EXPECT_NEAR(stage(predicted(), 0, name), table, 1e-12);
  for (EmbeddingBagConfig& t : m.tables) t.pooling = PoolingType::kMean;
  EXPECT_NEAR(stage(predicted(), 0, "combine"), 2 * table, 1e-12);
}

TEST_F(StepModelTest, SmallPayloadsRideBehindTheirHeaders) {
  const PlannerModule m = module_of(2, 1 << 20, 16);
  PlannerOptions o = options(2, 2);
  o.machine->intra_host->all_to_all = Curve({{1, 1}, {1e9, 1 + 1e-6}});  // the call is all that counts
  const auto calls = [&](int64_t batch) {
    o.batch_size = batch;
    return std::round(predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0)).exchanges);
  };
  EXPECT_EQ(calls(100), 3);      // ids, rows, gradients
  EXPECT_EQ(calls(1 << 20), 4);  // 12 MB of ids are not sent inline
}

TEST_F(StepModelTest, CollectionsHaveExchangesOfTheirOwn) {
  PlannerModule m = module_of(2, 1 << 20, 16), n = m;
  PlannerOptions o = options(2, 2);
  const ShardingPlan one = plan_of(m, o.topology, 0);
  m.tables.resize(1);
  n.tables.erase(n.tables.begin());
  n.path = "more";
  ShardingPlan two = one;
  two.modules = {{m.path, one.modules[0].second}, {n.path, one.modules[0].second}};
  for (auto& [path, tables] : two.modules) {
    EmbeddingModuleShardingPlan kept;
    const std::string& name = (path == m.path ? m : n).tables[0].name;
    kept.add(name, tables.at(name));
    tables = kept;
  }
  o.machine->intra_host->all_to_all = Curve({{1, 1}, {1e9, 1 + 1e-6}});
  EXPECT_EQ(std::round(predict_step(runtime_, o, {m, n}, two).exchanges), 6);
  n.kind = PlannerModule::Kind::kEmbeddingCollection;  // it then exchanges at the same time
  EXPECT_EQ(std::round(predict_step(runtime_, o, {m, n}, two).exchanges), 3);
}

TEST_F(StepModelTest, TellsTheWorkOfTheStages) {
  const PlannerModule m = module_of(2, 1 << 20, 16);
  const PlannerOptions o = options(2, 2);
  const StepPrediction p = predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0));
  ASSERT_EQ(p.work.size(), 2u);
  const RankWork& work = p.work[1];
  EXPECT_EQ(work.route.pieces, 2);
  EXPECT_EQ(work.route.ids, 200);
  EXPECT_EQ(work.route.cut_ids, 0);
  EXPECT_EQ(work.unpack.pieces, 2);   // id blocks of one table from both ranks
  EXPECT_EQ(work.combine.pieces, 1);  // rows of the rank's own table are local
  EXPECT_EQ(work.combine.bytes, 100 * 16 * 4);
  EXPECT_EQ(work.split.bytes, work.combine.bytes);
}

TEST_F(StepModelTest, KernelsThatHoldNoRowsAreNotCalled) {
  const PlannerModule m = module_of(1, 1 << 20, 16);
  PlannerOptions o = options(2, 2);
  o.machine->kernels[0].call_forward = 1;
  ShardingPlan plan = plan_of(m, o.topology, 0, ParameterSharding::Combine::kSum);
  ParameterSharding cut = plan.modules[0].second.at("t0");
  cut.shards.push_back({0, 16, 1 << 20, 0, 1});
  EmbeddingModuleShardingPlan tables;
  tables.add("t0", cut);
  plan.modules[0].second = tables;
  const StepPrediction p = predict_step(runtime_, o, {m}, plan);
  EXPECT_GT(stage(p, 0, "lookup"), 1);
  EXPECT_EQ(stage(p, 1, "lookup"), 0);
}

TEST_F(StepModelTest, EqualRanksWaitForEachOther) {
  const PlannerModule m = module_of(2, 1 << 20, 16);
  PlannerOptions o = options(2, 2);
  const StepPrediction before = predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0));
  EXPECT_EQ(before.waiting, 0);
  o.machine->intra_host->wait = 0.25;
  const StepPrediction after = predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0));
  EXPECT_NEAR(after.waiting, 0.25 * (before.seconds - before.exchanges), 1e-12);
  EXPECT_NEAR(after.seconds, before.seconds + after.waiting, 1e-12);
}

TEST_F(StepModelTest, DenseStagesCountWhatIsBesideTheirLayers) {
  const PlannerModule m = module_of(1, 1 << 20, 16);
  PlannerOptions o = options(1, 1);
  const DenseWork dense = dlrm_dense_work(4, 1, 16, {16}, {1});
  const double before = stage(predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0), dense), 0, "dense backward");
  o.machine->dense.backward = {{1e-6, 2e-6, 3e-7, 4e-8, 5e-9}};
  const double after = stage(predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0), dense), 0, "dense backward");
  // Layers 4x16 and 17x1 and an interaction of 2 vectors: 33 values in and out. A batch of 100.
  const double values = 4 + 16 + 17 + 1 + 2 * 16 + 1;
  EXPECT_NEAR(after - before, 1e-6 + 3 * 2e-6 + 100 * 3e-7 + 400 * 4e-8 + 4 * 100 * values * 5e-9, 1e-12);
}

TEST_F(StepModelTest, OtherHostsCostMore) {
  const PlannerModule m = module_of(4, 1 << 20, 16);
  const PlannerOptions near = options(4, 4), far = options(4, 2);
  const auto rows = [&](const PlannerOptions& o) {
    return stage(predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0)), 0, "exchange rows");
  };
  EXPECT_GT(rows(far), 5 * rows(near));
}

TEST_F(StepModelTest, ExchangesAcrossHostsAreToldApart) {
  PlannerOptions o = options(4, 2);
  const PlannerModule m = module_of(2, 1000, 16);
  const ShardingPlan plan = plan_of(m, o.topology, 0);
  const StepPrediction slow = predict_step(runtime_, o, {m}, plan);
  EXPECT_GT(slow.across_hosts, 0);
  EXPECT_LT(slow.across_hosts, slow.exchanges);
  EXPECT_GT(slow.bytes_across_hosts, 0);
  EXPECT_GT(slow.imbalance, 0);  // ranks 2 and 3 hold nothing

  // The network that the options state replaces the machine's, which takes 10 ns for a byte.
  o.network = LinkFigures::of_network(1e9, 0, 1e-12);
  const StepPrediction fast = predict_step(runtime_, o, {m}, plan);
  EXPECT_LT(fast.across_hosts, slow.across_hosts / 5);
  EXPECT_NEAR(fast.exchanges - fast.across_hosts, slow.exchanges - slow.across_hosts, 1e-12);
  EXPECT_EQ(fast.bytes_across_hosts, slow.bytes_across_hosts);
  EXPECT_THROW(LinkFigures::of_network(0, 0, 1e-6), Error);

  const PlannerOptions one_host = options(4, 4);
  const StepPrediction near = predict_step(runtime_, one_host, {m}, plan_of(m, one_host.topology, 0));
  EXPECT_EQ(near.across_hosts, 0);
  EXPECT_EQ(near.bytes_across_hosts, 0);
}

// Messages to all ranks travel at the same time, and only bytes that are sent take time.
TEST_F(StepModelTest, ADelayCountsOnceForEachExchange) {
  PlannerOptions o = options(16, 4);
  const PlannerModule m = module_of(16, 1000, 16);
  const auto across = [&](double delay, ParameterSharding::Combine combine) {
    o.network = LinkFigures::of_network(1e9, delay, 1e-9);
    return predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0, combine)).across_hosts;
  };
  using Combine = ParameterSharding::Combine;
  for (const auto& [combine, delays] : {std::pair(Combine::kConcat, 3), std::pair(Combine::kDataParallel, 4)})
    EXPECT_NEAR(across(1e-3, combine) - across(0, combine), delays * 1e-3, 2e-5);
}

// The ranks of a host share its link, in each direction.
TEST_F(StepModelTest, TheBusiestHostDecidesBetweenHosts) {
  PlannerOptions o = options(8, 2);
  o.network = LinkFigures::of_network(1e9, 0, 1e-12);
  o.batch_size = 1000;
  const auto rows_across = [&](int64_t tables) {
    const PlannerModule m = module_of(tables, 1000, 16);
    const double rows = stage(predict_step(runtime_, o, {m}, plan_of(m, o.topology, 0)), 0, "exchange rows");
    return rows - 1000 * 16 * 4 * 1e-9;  // to the other rank of the host
  };
  // Rank 0's rows for six ranks of other hosts take half the time that two ranks with as many bytes each would take.
  EXPECT_NEAR(rows_across(1), 3 * 1000 * 16 * 4 * 1e-9, 1e-6);
  EXPECT_NEAR(rows_across(2), 6 * 1000 * 16 * 4 * 1e-9, 1e-6);
}

// Any two ranks have 64 bytes per sample for each other. A message takes much longer than its bytes.
TEST_F(StepModelTest, SmallRowsOfManyRanksAreJoined) {
  PlannerOptions o = options(32, 8);
  o.network = LinkFigures::of_network(1e9, 0, 20e-6);
  const PlannerModule m = module_of(32, 1000, 16);
  const ShardingPlan plan = plan_of(m, o.topology, 0);
  const auto predict = [&](JoinExchanges join, int64_t batch) {
    o.joins = {join, join};
    o.batch_size = batch;
    return predict_step(runtime_, o, {m}, plan);
  };
  const StepPrediction joined = predict(JoinExchanges::kAuto, 100), direct = predict(JoinExchanges::kNever, 100);
  for (const char* exchange : {"exchange ids", "exchange rows", "exchange gradients"})
    EXPECT_LT(stage(joined, 0, exchange), .8 * stage(direct, 0, exchange)) << exchange;
  EXPECT_NEAR(joined.bytes_across_hosts, direct.bytes_across_hosts, 1e-3 * direct.bytes_across_hosts);
  const StepPrediction large = predict(JoinExchanges::kAuto, 200), never = predict(JoinExchanges::kNever, 200);
  EXPECT_EQ(stage(large, 0, "exchange rows"), stage(never, 0, "exchange rows"));
  EXPECT_GT(stage(predict(JoinExchanges::kAlways, 200), 0, "exchange rows"), 0);
}

TEST_F(StepModelTest, DataParallelTablesReduceTheRowsOfTheStep) {
  const PlannerModule m = module_of(2, 1 << 20, 16);
  PlannerOptions o = options(2, 2);
  const ShardingPlan plan = plan_of(m, o.topology, 0, ParameterSharding::Combine::kDataParallel);
  const StepPrediction before = predict_step(runtime_, o, {m}, plan);
  EXPECT_EQ(stage(before, 0, "exchange rows"), stage(before, 0, "exchange gradients"));
  EXPECT_NEAR(stage(before, 0, "lookup"), 2 * 100e-6, 1e-8);
  // A rank sends a bit for each row to the other one, then the gradients of both ranks' rows, which are nearly all
  // different.
  const double marks = 2.0 * (1 << 20) / 8, gradients = 2 * 200 * 16 * 4;
  EXPECT_NEAR(before.exchanges, (marks + gradients) * 1e-9, 0.01 * gradients * 1e-9 + 1e-9);
  EXPECT_NEAR(before.tables[0].bytes[0], marks / 2 + gradients / 2, 0.01 * gradients);
  o.machine->data_parallel = {1e-6, 2e-6, 3e-8, 4e-8, 5e-12, 6e-10};
  const StepPrediction after = predict_step(runtime_, o, {m}, plan);
  EXPECT_NEAR(stage(after, 0, "data parallel") - stage(before, 0, "data parallel"),
              1e-6 + 2 * (2e-6 + 200 * 3e-8 + 100 * 4e-8 + (1 << 20) * 5e-12) + gradients * 6e-10, 2e-8);
}

TEST_F(StepModelTest, DensePartCounts) {
  const PlannerModule m = module_of(3, 1000, 16);
  const PlannerOptions o = options(1, 1);
  const ShardingPlan plan = plan_of(m, o.topology, 0);
  const DenseWork dense = dlrm_dense_work(13, 3, 16, {64, 16}, {32, 1});
  EXPECT_EQ(dense.parameters(), 13 * 64 + 64 + 64 * 16 + 16 + (16 + 6) * 32 + 32 + 32 + 1);
  const double with = predict_step(runtime_, o, {m}, plan, dense).seconds;
  EXPECT_GT(with, predict_step(runtime_, o, {m}, plan).seconds + 4 * o.machine->dense.layer_forward.at(1));
}

// A byte between ranks takes 1 ns, and each layer backward 1 ms.
TEST_F(StepModelTest, DenseGradientsTravelWhileLayersRunBackward) {
  const PlannerModule m = module_of(1, 1000, 16);
  PlannerOptions o = options(2, 2);
  o.machine->dense.layer_backward = Curve({{1, 1e-3}, {1e12, 1e-3}});
  const ShardingPlan plan = plan_of(m, o.topology, 0);
  DenseWork dense;
  dense.layers = {{99, 1000}, {399, 1000}, {199, 1000}};  // 400 KB, 1.6 MB and 800 KB of gradients
  const auto left = [&](double bucket, double gradient_bytes = 4) {
    dense.bucket_bytes = bucket;
    dense.gradient_bytes = gradient_bytes;
    return stage(predict_step(runtime_, o, {m}, plan, dense), 0, "dense all-reduce");
  };
  // The last layer's bucket starts at 1 ms and takes 0.8 ms, the next one 2 ms and 1.6 ms, the first 3.6 ms and 0.4 ms.
  EXPECT_NEAR(left(1), 1e-3, 1e-6);
  EXPECT_NEAR(left(1, 2), 0.2e-3, 1e-6);  // 2 ms and 0.8 ms, 3 ms and 0.2 ms
  EXPECT_NEAR(left(1e9), 2.8e-3, 1e-6);   // one bucket, after the first layer
  o.machine->device = o.topology.compute_device = "cuda";
  EXPECT_NEAR(left(1), 2.8e-3, 1e-6);
}

TEST_F(StepModelTest, SequencesTravelTogetherWithPooledRows) {
  PlannerModule pooled = module_of(2, 1 << 20, 16), sequences = pooled;
  sequences.path = "sequences";
  sequences.kind = PlannerModule::Kind::kEmbeddingCollection;
  const PlannerOptions o = options(2, 2);
  // Each collection sends from a different rank, so that no rank sends bytes of both.
  ShardingPlan plan = plan_of(pooled, o.topology, 0);
  const auto all_on = [&](const PlannerModule& m, int rank) {
    EmbeddingModuleShardingPlan tables;
    for (const EmbeddingBagConfig& c : m.tables) {
      ParameterSharding s{"test", "fused", ParameterSharding::Combine::kConcat, false, {}};
      s.shards.push_back({c.num_embeddings, c.embedding_dim, 0, 0, rank});
      tables.add(c.name, s);
    }
    return tables;
  };
  plan.modules = {{pooled.path, all_on(pooled, 0)}, {sequences.path, all_on(sequences, 1)}};
  const double both = stage(predict_step(runtime_, o, {pooled, sequences}, plan), 0, "exchange rows");
  plan.modules = {{pooled.path, all_on(pooled, 0)}};
  EXPECT_NEAR(both, stage(predict_step(runtime_, o, {pooled}, plan), 0, "exchange rows"), 1e-8);
}

TEST_F(StepModelTest, APlanForOtherRanksIsRefused) {
  const PlannerModule m = module_of(1, 1000, 16);
  const PlannerOptions one = options(1, 1), two = options(2, 2);
  EXPECT_THAT(test::refusal([&] { predict_step(runtime_, two, {m}, plan_of(m, one.topology, 0)); }),
              HasSubstr("the plan is for 1 ranks and the topology has 2"));
}

TEST(Reuse, OneTableAloneSeesItself) {
  ReuseModel model;
  model.add_rows(1e6, 64, 0.01);
  EXPECT_NEAR(model.equivalent_bytes(0.01), 64e6, 1e3);
}

TEST(Reuse, PopularRowsSeeLess) {
  ReuseModel model;
  model.add_rows(1e6, 64, 0.001);
  model.add_rows(100, 64, 10);
  model.add_every_step(1e5);
  EXPECT_LT(model.equivalent_bytes(10), 5e5);
  EXPECT_EQ(model.equivalent_bytes(10), model.equivalent_bytes(1));  // both cover one whole step
  EXPECT_GT(model.equivalent_bytes(0.001), 60e6);
}

TEST(Reuse, BandsHaveAllRowsAndAllIds) {
  for (const double exponent : {0.0, 0.5, 1.0, 1.2}) {
    double rows = 0, share = 0, before = 1e9;
    for (const PopularityBand& b : popularity_bands(100000, exponent)) {
      rows += b.rows;
      share += b.share;
      EXPECT_LT(b.share / b.rows, before);
      before = b.share / b.rows;
    }
    EXPECT_NEAR(rows, 100000, 1e-6);
    EXPECT_NEAR(share, 1, 1e-12);
  }
}

TEST(DistinctShare, IsThatOfThePopularityOfRows) {
  EmbeddingBagConfig t = test::table(1000, 8);
  t.pooling = PoolingType::kNone;
  ParameterConstraints c{.pooling_factors = {50}};
  EXPECT_EQ(distinct_share(t, true, c, 100), 1);  // all ids travel
  t.use_index_dedup = true;
  EXPECT_NEAR(distinct_share(t, true, c, 100), 0.2 * (1 - std::exp(-5)), 1e-3);
  const double uniform = distinct_share(t, true, c, 10);
  c.zipf_exponent = 1.2;
  EXPECT_LT(distinct_share(t, true, c, 10), 0.8 * uniform);
  t.pooling = PoolingType::kSum;
  EXPECT_EQ(distinct_share(t, false, c, 10), 1);  // the owner sums rows, so all ids travel
  c.pooling_factors = {1};
  EXPECT_LT(distinct_share(t, false, c, 1000), 0.5);
}

TEST(Reuse, ExponentIsFoundAgain) {
  for (const double exponent : {0.3, 0.8, 1.05, 1.5}) {
    double distinct = 0;
    for (const PopularityBand& b : popularity_bands(50000, exponent))
      distinct += distinct_rows(b.rows, 10000 * b.share);
    EXPECT_NEAR(zipf_exponent_of(50000, 10000, distinct), exponent, 0.01);
  }
  EXPECT_EQ(zipf_exponent_of(1000, 100, 100), 0);
  EXPECT_EQ(zipf_exponent_of(1, 100, 1), 0);
}

TEST_F(StepModelTest, PlannerTellsItsCostModels) {
  PlannerOptions o = options(2, 2);
  o.cost_model = "guess";
  EXPECT_THAT(test::refusal([&] { EmbeddingShardingPlanner(runtime_, o).plan({module_of(1, 1000, 16)}); }),
              HasSubstr("there is no cost model \"guess\"; known are \"default\" and \"torchrec\""));
}

}  // namespace
}  // namespace tessera
