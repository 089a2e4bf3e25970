// The plugin `dynamic` with its sharder `hash` (docs/dynamic_tables.md): the ids that survive, and the values of their
// rows, are the same on 1, 2 and 4 ranks. A job of the program trains on texts hashed to an unbounded table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/test_refusal.h"
#include "dynamic_job.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"
#include "tessera/planner.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"
#include "tessera_program.h"

namespace tessera::test::dynamic_test {
namespace {

constexpr int64_t kRows = int64_t{1} << 50;
constexpr int64_t kDim = 8, kBatch = 64, kPerBag = 4, kSteps = 30;

// Ids of all ranks' samples of a step; popular ids occur more often, and ids have no order.
std::vector<int64_t> ids_of(int64_t step, int64_t first, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = first * kPerBag; i < (first + count) * kPerBag; ++i) {
    uint64_t x = static_cast<uint64_t>(step * kBatch * kPerBag + i) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    const double u = std::ldexp(static_cast<double>(x >> 11), -53);
    const auto rank = static_cast<uint64_t>(std::pow(3000.0, u));
    out.push_back(static_cast<int64_t>(rank * 0x9e3779b97f4a7c15u >> 14));
  }
  return out;
}

KeyedJaggedTensor batch_of(const std::vector<int64_t>& ids, int64_t each) {
  return KeyedJaggedTensor::from_lengths_sync(
      {"item"}, Tensor::from(ids),
      Tensor::from(std::vector<int32_t>(ids.size() / static_cast<size_t>(each), static_cast<int32_t>(each))));
}

// After kSteps of training, each id's row as an evaluation gives it; then the sums of the last step.
std::string survivors(const std::string& kernel, int world) {
  const auto texts = cli::run_in_ranks(world, world, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
    const auto group = ProcessGroup::connect(runtime, where);
    const std::vector<EmbeddingBagConfig> tables = {{.name = "item",
                                                     .num_embeddings = kRows,
                                                     .embedding_dim = kDim,
                                                     .feature_names = {"item"},
                                                     .init_range = 0.25}};
    ShardingRequest request{.sharding_type = "hash", .compute_kernel = kernel};
    const auto plan =
        construct_module_sharding_plan(runtime, tables, {{"item", request}}, Topology::of(world, world, "cpu"));
    const OptimizerSpec adagrad{"exact_rowwise_adagrad", R"({"learning_rate": 0.5, "eps": 0.1})", 0};
    auto items = EmbeddingBagCollectionSharder(runtime, {.optimizer = adagrad, .seed = 5, .gradient_scale = 1.0})
                     .shard(tables, plan, group);
    const int64_t count = kBatch / world, first = where.rank * count;
    std::set<int64_t> all;
    for (int64_t step = 1; step <= kSteps; ++step) {
      auto sums = items.forward(batch_of(ids_of(step, first, count), kPerBag)).wait();
      Tensor grad = Tensor::empty({count, kDim});
      for (int64_t i = 0; i < grad.numel(); ++i)
        grad.data<float>()[i] = static_cast<float>((first * kDim + i + step) % 13 - 6) / 8;
      items.backward(sums, grad);
      for (const int64_t id : ids_of(step, 0, kBatch)) all.insert(id);
    }
    const std::vector<int64_t> asked(all.begin(), all.end());
    const Tensor rows = items.forward(batch_of(asked, 1), false, false).wait().values.values();
    std::ostringstream out;
    for (size_t i = 0; i < asked.size(); ++i) {
      out << asked[i];
      for (int64_t d = 0; d < kDim; ++d) out << ' ' << rows.data<float>()[static_cast<int64_t>(i) * kDim + d];
      out << '\n';
    }
    group->barrier();
    return out.str();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front()) << "every rank reads the same rows";
  return texts.front();
}

struct Rows {
  std::vector<int64_t> asked, there;
  std::vector<float> values;
};
Rows parsed(const std::string& text) {
  Rows out;
  for (const std::string& line : lines_of(text)) {
    std::istringstream words(line);
    int64_t id = 0;
    words >> id;
    out.asked.push_back(id);
    bool is_there = false;
    for (float x = 0; words >> x;) {
      out.values.push_back(x);
      is_there = is_there || x != 0;
    }
    if (is_there) out.there.push_back(id);
  }
  return out;
}

class Dynamic : public testing::TestWithParam<const char*> {};

TEST_P(Dynamic, WhoSurvivesDoesNotDependOnTheRanks) {
  const std::string kernel = str_cat("dynamic?capacity=640&evict=", GetParam());
  const Rows alone = parsed(survivors(kernel, 1));
  EXPECT_LE(alone.there.size(), 640u);
  EXPECT_GT(alone.there.size(), 300u);
  EXPECT_GT(alone.asked.size(), alone.there.size() + 200) << "too few evictions to tell";
  for (const int world : {2, 4}) {
    SCOPED_TRACE(str_cat(world, " ranks"));
    const Rows together = parsed(survivors(kernel, world));
    ASSERT_EQ(together.asked, alone.asked);
    EXPECT_EQ(together.there, alone.there);
    for (size_t i = 0; i < alone.values.size(); ++i) ASSERT_NEAR(together.values[i], alone.values[i], 1e-4) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, Dynamic, testing::Values("lru", "lfu", "decayed&admit_after=2&ttl_steps=12"));

// Tables that do not ask for it are planned as usual; other kernels are not divided this way.
TEST(DynamicPlan, IsForTablesThatAsk) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
  std::vector<EmbeddingBagConfig> tables = {{.name = "item", .num_embeddings = 1000, .embedding_dim = kDim}};
  tables[0].optimizer = {"exact_sgd", R"({"learning_rate": 0.5})", 0};
  const auto planned = EmbeddingShardingPlanner(runtime, {.topology = Topology::of(2)})
                           .plan({{.path = "sparse", .tables = tables}})
                           .plan.at("sparse")
                           .at("item");
  EXPECT_NE(planned.compute_kernel, "dynamic");
  EXPECT_NE(planned.sharding_type, "hash");
  const auto said = cli::run_in_ranks(1, 1, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime own({.plugin_path = {TESSERA_TEST_PLUGINS}});
    ShardingRequest request{.sharding_type = "hash", .compute_kernel = "fused"};
    const auto plan = construct_module_sharding_plan(own, tables, {{"item", request}}, Topology::of(1, 1, "cpu"));
    return test::refusal(
        [&] { EmbeddingBagCollectionSharder(own, {}).shard(tables, plan, ProcessGroup::connect(own, where)); },
        "it runs");
  });
  EXPECT_THAT(said.front(), testing::HasSubstr("needs a kernel with rows on demand, and \"fused\" is not one"));
}

// A job on texts: their hashes are the ids.
std::string job_on_texts(const TestDirectory& folder) {
  std::string rows = "label,price,item,shop\n";
  for (int64_t i = 0; i < 1600; ++i) {
    const int64_t item = ids_of(i / kBatch, i % kBatch, 1)[static_cast<size_t>(i % 3)] % 997;
    rows += str_cat(item % 2, ',', i % 5, ",item-", item, ",shop-", i % 7, "\n");
  }
  return dynamic_job(folder, rows, R"(
[[table]]
name = "item"
rows = 1000000000000
compute_kernel = "dynamic?capacity=256&evict=lfu"
sharding = ["hash"]
[[table]]
name = "shop"
rows = 100
)",
                     R"(
column = [
  {name = "label", as = "label"},
  {name = "price", as = "dense"},
  {name = ["item", "shop"], as = "ids", ids = "hash"}]
)");
}

TEST(DynamicJob, TrainsOnTextsAlikeOnOneRankAndTwo) {
  const TestDirectory folder;
  const std::string report = folder.file("report.json");
  const std::string config = job_on_texts(folder);
  const auto trained = [&](const char* ranks) {
    const Finished done =
        run_tessera({"train", "--config", config, "--nproc", ranks, "--set", "report.json=" + report});
    EXPECT_EQ(done.status, 0) << done.output;
    EXPECT_THAT(done.output, testing::ContainsRegex("table item: [0-9]+ rows in use, [0-9]+ evicted, [0-9.]+ % of "));
    EXPECT_THAT(done.output, testing::Not(testing::HasSubstr("table shop:")));
    return done.status == 0 ? nlohmann::json::parse(contents(report)) : nlohmann::json();
  };
  const nlohmann::json alone = trained("1"), two = trained("2");
  ASSERT_TRUE(alone.is_object() && two.is_object());
  EXPECT_NEAR(two.at("test").at("logloss").get<double>(), alone.at("test").at("logloss").get<double>(), 1e-4);
  for (const nlohmann::json& of : {alone, two}) {
    const nlohmann::json &item = of.at("tables").at("item"), &shop = of.at("tables").at("shop");
    EXPECT_LE(item.at("rows_in_use"), 256);
    EXPECT_GT(item.at("evictions"), 0);
    EXPECT_GT(item.at("hits"), 0);
    EXPECT_LT(item.at("hits"), item.at("lookups"));
    for (const char* key : {"rows_in_use", "evictions", "lookups", "hits"})
      EXPECT_EQ(item.at(key), alone.at("tables").at("item").at(key)) << key;
    EXPECT_EQ(shop.at("rows_in_use"), 100);
    EXPECT_EQ(shop.at("hits"), shop.at("lookups"));
    EXPECT_EQ(shop.at("evictions"), 0);
  }
}

}  // namespace
}  // namespace tessera::test::dynamic_test
