// The plugin `mch` (docs/dynamic_tables.md): on any number of ranks it gives the results of TorchRec's managed
// collisions in front of a plain table. Also tests a job of the program, its checkpoints, and what a packed model reads
// for ids without a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dynamic_job.h"
#include "job_file.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"
#include "tessera/planner.h"
#include "tessera/sdk/managed_collisions.h"
#include "tessera/sdk/random.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"
#include "tessera_program.h"

namespace tessera::test::mch_test {
namespace {

using nlohmann::json;

constexpr int64_t kDim = 8, kBatch = 64, kPerBag = 4, kSteps = 24, kSlots = 150;

// Ids of all ranks' samples of a step; popular ids occur more often, and ids have no order.
std::vector<int64_t> ids_of(int64_t step) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < kBatch * kPerBag; ++i) {
    uint64_t x = static_cast<uint64_t>(step * kBatch * kPerBag + i) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    const double u = std::ldexp(static_cast<double>(x >> 11), -53);
    out.push_back(static_cast<int64_t>(static_cast<uint64_t>(std::pow(3000.0, u)) * 0x9e3779b97f4a7c15u >> 14));
  }
  return out;
}

// Sums of each step over all ranks. `managed`: ids are mapped to rows here, before a plain table.
std::vector<float> sums_of(const std::string& kernel, const std::string& sharder, int world, int64_t rows,
                           const sdk::MchOptions* managed) {
  const auto texts = cli::run_in_ranks(world, world, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
    const auto group = ProcessGroup::connect(runtime, where);
    const std::vector<EmbeddingBagConfig> tables = {
        {.name = "item", .num_embeddings = rows, .embedding_dim = kDim, .feature_names = {"item"}, .init_range = 0.25}};
    ShardingRequest request{.sharding_type = sharder, .compute_kernel = kernel};
    const auto plan =
        construct_module_sharding_plan(runtime, tables, {{"item", request}}, Topology::of(world, world, "cpu"));
    const OptimizerSpec adagrad{"exact_rowwise_adagrad", R"({"learning_rate": 0.5, "eps": 0.1})", 0};
    auto items = EmbeddingBagCollectionSharder(runtime, {.optimizer = adagrad, .seed = 5, .gradient_scale = 1.0})
                     .shard(tables, plan, group);
    const int64_t count = kBatch / world, first = where.rank * count;
    sdk::Mch mch(managed == nullptr ? sdk::MchOptions{.zch_size = 1} : *managed);
    std::string out;
    for (int64_t step = 1; step <= kSteps; ++step) {
      std::vector<int64_t> ids = ids_of(step);
      if (managed != nullptr) {
        mch.profile(ids);
        mch.remap(std::vector<int64_t>(ids), ids);
      }
      const std::vector<int64_t> own(ids.begin() + first * kPerBag, ids.begin() + (first + count) * kPerBag);
      const std::vector<int32_t> lengths(static_cast<size_t>(count), static_cast<int32_t>(kPerBag));
      auto sums =
          items.forward(KeyedJaggedTensor::from_lengths_sync({"item"}, Tensor::from(own), Tensor::from(lengths)))
              .wait();
      const Tensor& values = sums.values.values();
      for (int64_t i = 0; i < values.numel(); ++i) out += str_cat(values.data<float>()[i], ' ');
      out += '\n';
      Tensor grad = Tensor::empty({count, kDim});
      for (int64_t i = 0; i < grad.numel(); ++i)
        grad.data<float>()[i] = static_cast<float>((first * kDim + i + step) % 13 - 6) / 8;
      items.backward(sums, grad);
    }
    group->barrier();
    return out;
  });
  // Ordered by step, then by rank.
  std::vector<float> all;
  std::vector<std::istringstream> ranks(texts.begin(), texts.end());
  for (int64_t step = 0; step < kSteps; ++step) {
    for (std::istringstream& rank : ranks) {
      std::string line;
      std::getline(rank, line);
      std::istringstream values(line);
      for (float x = 0; values >> x;) all.push_back(x);
    }
  }
  EXPECT_EQ(std::ssize(all), kSteps * kBatch * kDim);
  return all;
}

// An id is a hit if it had a row before the step, not if it is admitted in the step.
TEST(MchKernel, CountsFirstSightsAsMisses) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
  const auto group = ProcessGroup::connect(runtime, {});
  const std::vector<EmbeddingBagConfig> tables = {
      {.name = "item", .num_embeddings = int64_t{1} << 50, .embedding_dim = kDim, .feature_names = {"item"}}};
  ShardingRequest request{.sharding_type = "table_wise", .compute_kernel = "mch?zch_size=4&policy=lru"};
  const auto plan = construct_module_sharding_plan(runtime, tables, {{"item", request}}, Topology::of(1, 1, "cpu"));
  const OptimizerSpec sgd{"exact_sgd", R"({"learning_rate": 0.5})", 0};
  auto items = EmbeddingBagCollectionSharder(runtime, {.optimizer = sgd, .seed = 5}).shard(tables, plan, group);
  uint64_t lookups = 0, hits = 0;
  const auto expect_step = [&](const std::vector<int64_t>& ids, uint64_t found) {
    const std::vector<int32_t> lengths(ids.size(), 1);
    auto sums =
        items.forward(KeyedJaggedTensor::from_lengths_sync({"item"}, Tensor::from(ids), Tensor::from(lengths))).wait();
    items.backward(sums, Tensor::zeros({std::ssize(ids), kDim}));
    const tsr_kernel_stats stats = items.kernel_stats(items.held_shards().at(0));
    EXPECT_EQ(stats.lookups, lookups += ids.size());
    EXPECT_EQ(stats.hits, hits += found);
  };
  expect_step({1, 2, 2, 3}, 0);
  expect_step({2, 2, 9}, 2);
  expect_step({9, 1, 3, 2}, 3);  // 9 has the row of 1 or 3
}

class ManagedCollisions : public testing::TestWithParam<std::pair<const char*, sdk::MchOptions>> {};

TEST_P(ManagedCollisions, AreThoseInFrontOfAPlainTable) {
  const auto& [options, mch] = GetParam();
  const std::vector<float> want = sums_of("fused", "table_wise", 1, kSlots, &mch);
  const std::string kernel = str_cat("mch?zch_size=", kSlots, "&reset=false&", options);
  for (const auto& [world, sharder] : {std::pair(1, "table_wise"), {2, "table_wise"}, {4, "column_wise"}}) {
    SCOPED_TRACE(str_cat(world, " ranks, ", sharder));
    const std::vector<float> got = sums_of(kernel, sharder, world, int64_t{1} << 50, nullptr);
    ASSERT_EQ(got.size(), want.size());
    // Row-wise Adagrad keeps a state per column shard, so sums of sharded columns differ.
    if (std::string_view(sharder) == "column_wise") continue;
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Policies, ManagedCollisions,
    testing::Values(std::pair("policy=lfu", sdk::MchOptions{.zch_size = kSlots}),
                    std::pair("policy=lru&eviction_interval=3",
                              sdk::MchOptions{
                                  .policy = sdk::MchPolicy::kLru, .zch_size = kSlots, .eviction_interval = 3}),
                    std::pair("policy=distance_lfu&filter=average&decay_exponent=2&eviction_interval=2",
                              sdk::MchOptions{.policy = sdk::MchPolicy::kDistanceLfu,
                                              .filter = sdk::MchFilter::kAverage,
                                              .decay_exponent = 2,
                                              .zch_size = kSlots,
                                              .eviction_interval = 2})));

class MchJob : public testing::Test, protected JobFile {
 protected:
  static double loss(const json& report) { return report.at("test").at("logloss").get<double>(); }

  const std::string config_ = dynamic_job(folder_, popular_rows(), R"(any_id = true
compute_kernel = "mch?eviction_interval=2"
sharding = ["table_wise"]
[[table]]
name = "item"
rows = 200
)");
};

TEST_F(MchJob, TrainsGoesOnAndIsPacked) {
  const json alone = trained(1, {"--save", folder_.file("saved")});
  ASSERT_TRUE(alone.is_object());
  const json& table = alone.at("tables").at("item");
  EXPECT_EQ(table.at("rows_in_use").get<int64_t>(), 200) << "199 ids, and the row that all others share";
  EXPECT_GT(table.at("evictions").get<int64_t>(), 10);
  EXPECT_NEAR(loss(trained(2, {})), loss(alone), 1e-5);
  // Trains half of it, then continues on other ranks.
  ASSERT_TRUE(trained(1, {"--save", folder_.file("half"), "--max-steps", "37"}).is_object());
  EXPECT_NEAR(loss(trained(2, {"--save", folder_.file("half"), "--resume"})), loss(alone), 1e-5);
  // Another run begins with its rows, including the shared one.
  const json begun = trained(2, {"--start", folder_.file("saved"), "--max-steps", "0"});
  ASSERT_TRUE(begun.is_object());
  EXPECT_EQ(begun.at("start").size(), 1u) << begun.at("start");
  EXPECT_NEAR(loss(begun), loss(alone), 1e-6);
  const json fewer = trained(1, {"--start", folder_.file("saved"), "--max-steps", "0", "--set", "table.item.rows=50"});
  ASSERT_TRUE(fewer.is_object());
  EXPECT_EQ(fewer.at("tables").at("item").at("evictions"), 0) << "what has no room was never there";
  // A packed model reads the shared row for ids without a row, like an evaluation.
  const std::string model = folder_.file("model"), scores = folder_.file("scores.csv");
  succeed({"quantize", "--load", folder_.file("saved"), "--save", model, "--weights", "fp32"});
  const Finished inspected = run_tessera({"model", "inspect", model});
  EXPECT_THAT(one_line(inspected.output), testing::HasSubstr("other ids share one row"));
  succeed({"predict", "--model", model, "--config", config_, "--part", "test", "--output", scores});
  EXPECT_NEAR(logloss_of(scores), loss(alone), 1e-6);
}

// Ids have used the shared row before any was admitted, and most slots are empty.
TEST_F(MchJob, GoesOnWithEmptySlots) {
  const std::vector<std::string> few{"--set", "table_defaults.compute_kernel=\"mch?eviction_interval=5\"", "--set",
                                     "table.item.rows=4000"};
  const auto with = [&few](std::vector<std::string> more) {
    more.insert(more.end(), few.begin(), few.end());
    return more;
  };
  const json whole = trained(1, with({}));
  ASSERT_TRUE(whole.is_object());
  EXPECT_LT(whole.at("tables").at("item").at("rows_in_use").get<int64_t>(), 4000);
  ASSERT_TRUE(trained(1, with({"--save", folder_.file("early"), "--max-steps", "12"})).is_object());
  const json resumed = trained(2, with({"--save", folder_.file("early"), "--resume"}));
  EXPECT_NEAR(loss(resumed), loss(whole), 1e-5);
  EXPECT_EQ(resumed.at("tables").at("item").at("rows_in_use"), whole.at("tables").at("item").at("rows_in_use"));
}

// A checkpoint of changes includes counts and times of ids that were only sighted. Continuing from it gives the same as
// from one with all rows of the same step.
TEST_F(MchJob, ChangesAreTheTableToo) {
  const Stopped last = stopped_behind_changes({tessera_path(), "train", "--config", config_}, folder_.file("often"));
  const std::string once = folder_.file("once");
  trained(1, {"--save", once, "--max-steps", str_cat(last.step), "--set", kWithoutEnd});
  const json content = json::parse(contents(last.changes + "/checkpoint.json")).at("content");
  EXPECT_TRUE(content.at("tables").at(0).at("changes").get<bool>());
  EXPECT_GT(content.at("tables").at(0).at("removed").get<int>(), 0);
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const auto on = [&](const std::string& from) {
      return trained(ranks, {"--load", from, "--max-steps", str_cat(last.step + 40), "--set", kWithoutEnd});
    };
    const json a = on(last.changes), b = on(once);
    ASSERT_TRUE(a.is_object() && b.is_object());
    EXPECT_EQ(a.at("tables").at("item").at("evictions"), b.at("tables").at("item").at("evictions"));
    EXPECT_EQ(a.at("test").at("logloss").dump(), b.at("test").at("logloss").dump());
  }
}

TEST_F(MchJob, WrongOptionsAreNamed) {
  for (const auto& [kernel, says] :
       {std::pair("mch?policy=fifo", "there are lfu, lru and distance_lfu"),
        std::pair("mch?threshold_skew_multiplier=2", "threshold_skew_multiplier belongs to dynamic"),
        std::pair("mch?decay_exponent=2", "decay_exponent belongs to lru and distance_lfu"),
        std::pair("mch?filter=median", "there are none, average and dynamic"),
        std::pair("mch?eviction_interval=0", "needs 1 step or more"),
        std::pair("mch?zch_size=1", "needs 2 rows or more: ids without one share the last"),
        std::pair("mch?evict=lru", "the nearest known one is")}) {
    expect_refused(
        run_tessera({"train", "--config", config_, "--set", str_cat("table_defaults.compute_kernel=\"", kernel, '"')}),
        testing::HasSubstr(says));
  }
}

}  // namespace
}  // namespace tessera::test::mch_test
