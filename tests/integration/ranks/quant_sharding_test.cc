// Quantized tables over 1, 2 and 4 ranks of one or two hosts, under every sharding type, compared with the unsharded
// collection: pooled and sequences, several formats in a module, pruned ids and remappings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "planner/search_space.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"
#include "tessera/planner.h"
#include "tessera/quantization.h"

namespace tessera::test::quant_sharding_test {
namespace {

constexpr int64_t kDim = 16;

// t0 is int8, t1 is int4 with MEAN, t2 is a pruned int2 table.
std::vector<QuantizedTable> tables_of(bool pooled) {
  std::vector<QuantizedTable> out;
  const RowFormat formats[] = {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kInt2};
  for (int t = 0; t < 3; ++t) {
    QuantizedTable table;
    table.config.name = str_cat("t", t);
    table.config.num_embeddings = 13;
    table.config.embedding_dim = kDim;
    table.config.feature_names = {str_cat("f", t)};
    table.config.pooling = !pooled ? PoolingType::kNone : t == 1 ? PoolingType::kMean : PoolingType::kSum;
    table.config.row_format = formats[t];
    table.config.init_range = 1;
    Tensor weights = Tensor::empty({13, kDim});
    initial_values(table.config, 7, 0, 13, 0, kDim, weights.data<float>());
    table.rows = quantize_rows(weights, formats[t], table.config.name);
    if (t == 2) {
      std::vector<int32_t> rows;
      for (int i = 0; i < 26; ++i) rows.push_back(i % 2 ? -1 : 12 - i / 2);
      table.config.remapping = IndexRemapping::array(Tensor::from(rows));
    }
    out.push_back(std::move(table));
  }
  return out;
}

// Three samples; t2's ids are below 26, and -1 is a pruned row everywhere.
KeyedJaggedTensor batch_of(int rank) {
  return KeyedJaggedTensor::from_lengths_sync(
      {"f2", "f0", "f1"}, Tensor::from<int64_t>({24, rank, 1, -1, 0, 12, rank, -1, 3, 5, 5, -1, 11, 12}),
      Tensor::from<int32_t>({3, 1, 1, 0, 3, 1, 2, 0, 3}));
}

EmbeddingModuleShardingPlan quant_plan(const Runtime& runtime, const std::vector<QuantizedTable>& tables,
                                       const std::string& type, const Topology& topology) {
  return plan_of(runtime, configs_of(tables), topology, {type}, {.compute_kernel = "quant", .min_partition = 4});
}

std::string run_pooled(const Runtime& runtime, const EmbeddingModuleShardingPlan& plan,
                       const std::shared_ptr<ProcessGroup>& group) {
  const std::vector<QuantizedTable> tables = tables_of(true);
  auto sharded = QuantEmbeddingBagCollectionSharder(runtime, {}).shard(tables, plan, group);
  QuantEmbeddingBagCollection whole(runtime, {.tables = tables});
  std::string out;
  for (int step = 0; step < 2; ++step) {
    const KeyedTensor want = whole.forward(batch_of(group->rank() + step));
    // Nothing is kept for a backward, even if the caller does not say so.
    const auto got = sharded.forward(batch_of(group->rank() + step), false, step == 0).wait();
    if (got.values.keys() != want.keys()) return "other keys";
    out += difference("pooled", got.values.values(), want.values(), 1e-5);
  }
  return out;
}

std::string run_sequences(const Runtime& runtime, const EmbeddingModuleShardingPlan& plan,
                          const std::shared_ptr<ProcessGroup>& group) {
  const std::vector<QuantizedTable> tables = tables_of(false);
  auto sharded = QuantEmbeddingCollectionSharder(runtime, {}).shard(tables, plan, group);
  QuantEmbeddingCollection whole(runtime, {.tables = tables});
  const JaggedTensorDict want = whole.forward(batch_of(group->rank()));
  const auto got = sharded.forward(batch_of(group->rank()), false, false).wait();
  std::string out;
  for (size_t i = 0; i < want.size(); ++i) {
    out += difference(want[i].first, got.values.at(i).second.values(), want[i].second.values(), 1e-5);
  }
  return out;
}

RuntimeOptions with_stripe() {
  RuntimeOptions options{.plugin_path = {TESSERA_TEST_PLUGINS}};
  return options;
}

class Cuts : public testing::TestWithParam<std::string> {};

TEST_P(Cuts, EqualTheUnshardedCollection) {
  for (const auto& [world, local] : {std::pair(1, 1), {2, 2}, {4, 2}}) {
    SCOPED_TRACE(str_cat(world, " ranks, ", local, " in a host"));
    const Topology topology = Topology::of(world, local, "cpu");
    const auto answers = cli::run_in_ranks(world, local, 60, [&](const RankEnvironment& where) {
      const Runtime runtime(with_stripe());
      const auto group = ProcessGroup::connect(runtime, where);
      std::string out = run_pooled(runtime, quant_plan(runtime, tables_of(true), GetParam(), topology), group);
      out += run_sequences(runtime, quant_plan(runtime, tables_of(false), GetParam(), topology), group);
      group->barrier();
      return out;
    });
    for (const std::string& answer : answers) EXPECT_EQ(answer, "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cuts,
                         testing::Values("table_wise", "row_wise", "column_wise", "table_row_wise", "table_column_wise",
                                         "grid_shard", "data_parallel", "acme.stripe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(QuantPlanner, PlansQuantizedTablesWithTheirStoredBytes) {
  const Runtime runtime;
  PlannerOptions options{.topology = Topology::of(2, 2, "cpu")};
  PlannerModule module{.path = "sparse", .tables = configs_of(tables_of(true))};
  const PlanResult result = EmbeddingShardingPlanner(runtime, options).plan({module});
  for (const auto& [table, sharding] : result.plan.at("sparse").tables()) EXPECT_EQ(sharding.compute_kernel, "quant");
  int64_t options_of_t1 = 0;
  for (const ShardingOption& o : enumerate(runtime, options, {module}).options) {
    EXPECT_EQ(o.compute_kernel, "quant");
    EXPECT_EQ(o.total_perf, o.total_perf) << "a number";
    if (o.name != "t1" || o.sharding_type != "table_wise") continue;
    ++options_of_t1;
    EXPECT_GE(o.total_storage.ddr, 13 * (4 + 8));
    EXPECT_LT(o.total_storage.ddr - int64_t{13} * (4 + 8),
              options.topology.world_size * options.batch_size * (8 + 4 * kDim) + 1);
  }
  EXPECT_EQ(options_of_t1, 1);
  module.tables[0].row_format.reset();
  for (const ShardingOption& o : enumerate(runtime, options, {module}).options) {
    EXPECT_EQ(o.compute_kernel == "quant", o.name != "t0") << o.name;
  }
}

TEST(QuantSharding, WrongPlansAreRefused) {
  const Runtime runtime;
  const std::vector<QuantizedTable> tables = tables_of(true);
  EmbeddingModuleShardingPlan plan = quant_plan(runtime, tables, "table_wise", Topology::of(1, 1, "cpu"));
  EmbeddingModuleShardingPlan inside_byte;
  for (auto [name, sharding] : plan.tables()) {
    sharding.shards = {{13, 2, 0, 0, 0}, {13, kDim - 2, 0, 2, 0}};
    inside_byte.add(name, sharding);
  }
  EXPECT_THAT(test::refusal([&] {
                (void)QuantEmbeddingBagCollectionSharder(runtime, {})
                    .shard(tables, inside_byte, ProcessGroup::connect(runtime, RankEnvironment{}));
              }),
              testing::HasSubstr("table \"t2\": a shard begins at column 2, inside a byte of int2"));
}

}  // namespace
}  // namespace tessera::test::quant_sharding_test
