// Tables whose kernel makes its own rows (tests/bad_plugins/row_makers.cc): they start and train like tables whose rows
// the core imports, under every plan and number of ranks. An evaluation makes no rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "spawn.h"
#include "tessera/embedding_modules.h"
#include "tessera/planner.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"
#include "tessera_program.h"

namespace tessera::test::row_makers_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBatch = 8;  // over all ranks
constexpr int64_t kDim = 8;

Runtime with_row_makers() { return Runtime({.plugin_path = {TESSERA_TEST_PLUGINS, TESSERA_ROW_MAKERS}}); }

std::vector<EmbeddingBagConfig> film(int64_t rows, PoolingType pooling = PoolingType::kSum) {
  return {{.name = "film",
           .num_embeddings = rows,
           .embedding_dim = kDim,
           .feature_names = {"film"},
           .pooling = pooling,
           .init_range = 0.25}};
}

// Samples [first, first + count) of a step, three ids each.
KeyedJaggedTensor samples(int64_t rows, int64_t step, int64_t first, int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 3 * first; i < 3 * (first + count); ++i) ids.push_back((i * i * 7919 + step * 31) % rows);
  return KeyedJaggedTensor::from_lengths_sync({"film"}, Tensor::from(ids),
                                              Tensor::from(std::vector<int32_t>(static_cast<size_t>(count), 3)));
}

Tensor gradient(int64_t step, int64_t first, int64_t count, float scale) {
  Tensor out = Tensor::empty({count, kDim});
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data<float>()[i] = scale * static_cast<float>((first * kDim + i + step) % 13 - 6) / 8;
  return out;
}

struct Trial {
  std::string kernel;
  std::string sharding;
  int world = 1;
  int64_t rows = 1000;
  PoolingType pooling = PoolingType::kSum;
};
std::string text_of(const Trial& r) { return str_cat(r.kernel, ", ", r.sharding, ", ", r.world, " ranks"); }

ShardedEmbeddingBagCollection sharded(const Runtime& runtime, const Trial& trial, std::shared_ptr<ProcessGroup> group) {
  ShardingRequest request{.sharding_type = trial.sharding, .compute_kernel = trial.kernel, .min_partition = 4};
  if (trial.sharding == "table_wise") request.ranks = {trial.world - 1};
  const auto tables = film(trial.rows, trial.pooling);
  const auto plan = construct_module_sharding_plan(runtime, tables, {{"film", request}},
                                                   Topology::of(trial.world, trial.world, "cpu"));
  const OptimizerSpec adagrad{"exact_adagrad", R"({"learning_rate": 0.5, "eps": 0.1})", 0};
  return EmbeddingBagCollectionSharder(runtime, {.optimizer = adagrad, .seed = 5, .gradient_scale = 1.0})
      .shard(tables, plan, std::move(group));
}

// Every sample's bag in three steps of training, and in an evaluation after them, which includes ids that no step had.
std::vector<float> outputs(const Trial& trial) {
  const auto texts = cli::run_in_ranks(trial.world, trial.world, 60, [&](const RankEnvironment& where) {
    const Runtime runtime = with_row_makers();
    const auto group = ProcessGroup::connect(runtime, where);
    auto tables = sharded(runtime, trial, group);
    const int64_t count = kBatch / trial.world, first = where.rank * count;
    std::ostringstream out;
    const auto print = [&](const Tensor& values) {
      for (const float x : values.span<float>()) out << std::hexfloat << x << ' ';
    };
    for (int64_t step = 0; step < 3; ++step) {
      auto mine = tables.forward(samples(trial.rows, step, first, count)).wait();
      print(mine.values.values());
      tables.backward(mine, gradient(step, first, count, 1));
    }
    print(tables.forward(samples(trial.rows, 9, first, count), false, false).wait().values.values());
    group->barrier();
    return out.str();
  });
  // Ordered by step, then by rank.
  std::vector<float> all;
  const int64_t each = kBatch / trial.world * kDim;
  std::vector<std::vector<float>> by_rank;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    std::vector<float>& values = by_rank.emplace_back();
    for (std::string word; in >> word;) values.push_back(std::strtof(word.c_str(), nullptr));
    EXPECT_EQ(values.size(), static_cast<size_t>(4 * each)) << text;
  }
  for (int64_t step = 0; step < 4; ++step) {
    for (const auto& values : by_rank)
      all.insert(all.end(), values.begin() + step * each, values.begin() + (step + 1) * each);
  }
  return all;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, size_t count) {
  ASSERT_GE(got.size(), count);
  ASSERT_GE(want.size(), count);
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(double{want[i]}));
    ASSERT_NEAR(got[i], want[i], 1e-5) << "value " << i;
  }
  EXPECT_GT(largest, 0.01) << "there is nothing to compare";
}

constexpr size_t kTrained = 3 * kBatch * kDim;  // prefix of the result of outputs()

TEST(RowMakers, RowsOnDemandAreThoseThatTheCoreWouldHaveImported) {
  const std::vector<float> want = outputs({"fused", "table_wise"});
  for (const Trial& trial : {Trial{"bad.on_demand", "table_wise"}, Trial{"bad.on_demand", "table_wise", 2},
                             Trial{"bad.on_demand", "row_wise", 2}, Trial{"bad.on_demand", "column_wise", 2},
                             Trial{"bad.on_demand?capacity=100", "acme.stripe", 2}}) {
    SCOPED_TRACE(text_of(trial));
    expect_near(outputs(trial), want, kTrained);
  }
}

TEST(RowMakers, ATableWithoutRowsStartsAlikeUnderEveryPlan) {
  const std::vector<float> want = outputs({"bad.products?radix=8", "table_wise"});
  for (const Trial& trial :
       {Trial{"bad.products?radix=8", "table_wise", 2}, Trial{"bad.products?radix=8", "column_wise", 2}}) {
    SCOPED_TRACE(text_of(trial));
    expect_near(outputs(trial), want, want.size());
  }
  const std::vector<float> other = outputs({"bad.products?radix=50", "table_wise"});
  EXPECT_NE(std::vector(other.begin(), other.begin() + 8), std::vector(want.begin(), want.begin() + 8))
      << "the option of the table's kernel arrives there";
}

TEST(RowMakers, ATableMayHaveMoreRowsThanMemory) {
  constexpr int64_t kMany = int64_t{1} << 50;
  const std::vector<float> one = outputs({"bad.on_demand", "table_wise", 1, kMany});
  expect_near(outputs({"bad.on_demand", "row_wise", 2, kMany}), one, kTrained);
}

TEST(RowMakers, AnEvaluationMakesNoRows) {
  const auto texts = cli::run_in_ranks(1, 1, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime = with_row_makers();
    const auto group = ProcessGroup::connect(runtime, where);
    auto tables = sharded(runtime, {"bad.on_demand?capacity=24", "table_wise"}, group);
    const auto largest = [](const Tensor& values) {
      float out = 0;
      for (const float x : values.span<float>()) out = std::max(out, std::abs(x));
      return out;
    };
    std::string out;
    // Enough evaluations to fill the table many times.
    for (int64_t step = 10; step < 20; ++step) {
      const float x = largest(tables.forward(samples(1000, step, 0, kBatch), false, false).wait().values.values());
      if (x != 0) out += str_cat("an unseen row holds ", x, "\n");
    }
    tables.backward(tables.forward(samples(1000, 0, 0, kBatch)).wait(), gradient(0, 0, kBatch, 1));
    if (largest(tables.forward(samples(1000, 0, 0, kBatch), false, false).wait().values.values()) == 0)
      out += "a trained row is 0\n";
    try {
      tables.forward(samples(1000, 1, 0, kBatch)).wait();
      out += "a full table took more rows\n";
    } catch (const Error& e) {
      if (std::string(e.what()).find("its capacity of 24 rows: give it more") == std::string::npos) out += e.what();
    }
    return out;
  });
  EXPECT_EQ(texts.at(0), "");
}

std::string refusal_of(const std::string& kernel, PoolingType pooling = PoolingType::kSum) {
  const Runtime runtime = with_row_makers();
  PlannerOptions options{.topology = Topology::of(1)};
  options.constraints["film"].compute_kernels = {kernel};
  auto tables = film(1000, pooling);
  tables[0].optimizer = {"exact_sgd", R"({"learning_rate": 0.5})", 0};
  try {
    return EmbeddingShardingPlanner(runtime, options)
        .plan({{.path = "sparse", .tables = tables}})
        .plan.at("sparse")
        .at("film")
        .compute_kernel;
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(RowMakers, OptionsOfATableReachItsKernelWhenItIsPlanned) {
  EXPECT_EQ(refusal_of("bad.products?radix=8"), "bad.products?radix=8");
  EXPECT_THAT(refusal_of("bad.products?radix=0"), HasSubstr("table \"film\" has radix 0, but needs 1 or more"));
  EXPECT_THAT(refusal_of("bad.products?radish=8"), HasSubstr("radish"));
  EXPECT_THAT(refusal_of("fused?radix=8"), HasSubstr("table \"film\" has the options {\"radix\":8}, but this kernel"));
  EXPECT_THAT(refusal_of("bad.products(cpu)"), HasSubstr("is not the name of a compute kernel"));
  EXPECT_THAT(refusal_of("bad.products", PoolingType::kMax), HasSubstr("is pooled by MAX, which is not served"));
}

// A job of the program whose config names kernels with options.
class RowMakersJob : public testing::Test {
 protected:
  test::Finished trained(const std::string& kernel, const Arguments& more = {}) const {
    return run_tessera(Arguments{"train", "--config", config_, "--set",
                                 str_cat("plugins.path=[\"", TESSERA_ROW_MAKERS, "\"]"), "--set",
                                 str_cat("table_defaults.compute_kernel=\"", kernel, "\"")} +
                       more);
  }

  // At most 32 different rows are trained, and the test part asks for many more.
  test::TestDirectory folder_;
  const std::string config_ = folder_.write("job.toml", R"(
job = {threads = 1}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [1]}
table_defaults = {optimizer = {name = "exact_sgd", learning_rate = 0.05}}
data = {reader = "synthetic", columns = 1, rows = [100000], dense = 2, samples = 32, test_samples = 4000, batch = 8}
)");
};

TEST_F(RowMakersJob, OptionsOfAKernelComeOutOfTheConfigAndTheTestMakesNoRows) {
  EXPECT_THAT(succeed(trained("bad.on_demand?capacity=32")), HasSubstr("(4000 samples)"));
  test::expect_refused(trained("bad.on_demand?capacity=4"), HasSubstr("its capacity of 4 rows: give it more"), 1);
  test::expect_refused(trained("bad.on_demand?capacities=4"), HasSubstr("capacities"));
}

// tests/integration/reads_only.cc: a kernel that refuses any other lookup.
TEST_F(RowMakersJob, PredictionsInsertNothing) {
  const std::string checkpoint = folder_.file("checkpoint"), model = folder_.file("model");
  ASSERT_EQ(trained("fused", {"--save", checkpoint}).status, 0);
  ASSERT_EQ(test::run_tessera({"quantize", "--load", checkpoint, "--save", model}).status, 0);
  const std::string done =
      succeed(test::run_program({test::tessera_path(), "predict", "--model", model, "--config", config_, "--part",
                                 "test", "--output", folder_.file("scores.csv")},
                                60, [] { setenv("TESSERA_PLUGIN_PATH", TESSERA_READS_ONLY, 1); }));
  EXPECT_THAT(done, HasSubstr("test.reads_only: nothing is inserted"));
}

}  // namespace
}  // namespace tessera::test::row_makers_test
