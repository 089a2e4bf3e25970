// `tessera stats`, and the plugin `hot_rows` that uses its lists: which rows are popular, which ranks look them up, and
// that training gives the same as under any other plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

#include "sharded.h"
#include "small_job.h"
#include "spawn.h"
#include "tessera/sharded_modules.h"
#include "tessera_program.h"

namespace tessera::test::hot_rows_test {
namespace {

using nlohmann::json;

// Data whose figures can be counted by hand.
std::string tiny_job(const TestDirectory& folder) {
  folder.write("meta.json",
               R"({"dense": ["x"], "columns": [{"name": "film", "rows": 10}, {"name": "user", "rows": 4}]})");
  folder.write("train.tsv",
               "1\t0\t7,7,3\t0\n"
               "0\t1\t7\t1\n"
               "1\t2\t\t1\n"
               "0\t3\t3,9,7,7,7,0\t3\n");
  folder.write("test.tsv", "1\t0\t1\t0\n");
  return folder.write("job.toml",
                      str_cat("[data]\nreader = \"prepared\"\npath = \"", folder.file(""), "\"\nbatch = 2\n"));
}

TEST(Stats, CountsRowsPopularityAndLengths) {
  const TestDirectory folder;
  const std::string config = tiny_job(folder), hot = folder.file("hot");
  const std::string done = succeed({"stats", "--config", config, "--json", "--hot", hot, "--hot-rows", "2"});
  const json tables = json::parse(done).at("tables");
  ASSERT_EQ(tables.size(), 2u);
  const json& film = tables[0];
  EXPECT_EQ(film.at("table"), "film");
  EXPECT_EQ(film.at("rows"), 10);
  EXPECT_EQ(film.at("distinct"), 4);
  EXPECT_EQ(film.at("ids"), 10);
  EXPECT_EQ(film.at("bags"), 4);
  EXPECT_DOUBLE_EQ(film.at("share_of_lookups").at("top_1"), 0.6);
  EXPECT_DOUBLE_EQ(film.at("share_of_lookups").at("top_10"), 1);
  const json& bag = film.at("ids_per_bag");
  EXPECT_DOUBLE_EQ(bag.at("mean"), 2.5);
  EXPECT_EQ(bag.at("p50"), 1);
  EXPECT_EQ(bag.at("max"), 6);
  EXPECT_DOUBLE_EQ(bag.at("empty"), 0.25);
  EXPECT_EQ(tables[1].at("distinct"), 3);
  EXPECT_EQ(contents(hot), "film 7 3\nuser 1 0\n");

  const std::string text = succeed({"stats", "--config", config, "--table", "film"});
  EXPECT_THAT(text, testing::ContainsRegex("film +10 +4 +10 +[0-9.]+ +60\\.0% +100\\.0% "));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("user")));
  expect_refused({"stats", "--config", config, "--table", "flim"}, testing::HasSubstr("the job has no table \"flim\""));
}

// Uses the lists that stats has made of the job's own data.
TEST(HotRows, TrainAsRowWiseDoes) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", small_job({.samples = 3200, .test_samples = 500, .epochs = 1}));
  const std::string hot = folder.file("hot"), report = folder.file("report.json");
  succeed({"stats", "--config", config, "--hot", hot, "--hot-rows", "20"});
  const auto trained = [&](const std::string& sharding) -> json {
    const Finished done = run_tessera(
        {"train", "--config", config, "--nproc", "4", "--set", str_cat("plugins.path=[\"", TESSERA_TEST_PLUGINS, "\"]"),
         "--set", str_cat("table_defaults.sharding=[\"", sharding, "\"]"), "--set", "report.json=" + report});
    EXPECT_EQ(done.status, 0) << done.output;
    return done.status != 0 ? json() : json::parse(contents(report));
  };
  const json cut = trained("row_wise"), mixed = trained(str_cat("hot_rows?file=", hot));
  const std::vector<double> want = cut.at("losses"), got = mixed.at("losses");
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4 * want[i]) << "step " << i;
  EXPECT_NEAR(mixed.at("test").at("auc").get<double>(), cut.at("test").at("auc").get<double>(), 1e-4);
  const json shards = mixed.at("plan").at("modules").at(0).at("tables").at(0).at("shards");
  EXPECT_EQ(shards.size(), 8u);
  EXPECT_EQ(std::count_if(shards.begin(), shards.end(), [](const json& s) { return s.value("replica", false); }), 4);
}

constexpr int kWorld = 4;
constexpr int64_t kRows = 20000, kBags = 2048, kIds = 8;

// Draws row k with a probability proportional to 1 / (k + 1)^1.05.
std::vector<int64_t> zipf_ids(int rank) {
  std::vector<double> until(kRows);
  double sum = 0;
  for (int64_t k = 0; k < kRows; ++k)
    until[static_cast<size_t>(k)] = sum += std::pow(static_cast<double>(k + 1), -1.05);
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kBags * kIds; ++i) {
    const double at = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
    ids.push_back(std::upper_bound(until.begin(), until.end(), at) - until.begin());
  }
  for (int64_t& id : ids) id = std::min(id, kRows - 1);
  return ids;
}

// Ids that each rank looks up in one step: its own of replicated rows, and all ranks' of the rows that it owns.
std::vector<double> looked_up(const std::string& sharding) {
  std::vector<double> out(kWorld);
  size_t rank = 0;
  for (const std::string& text : cli::run_in_ranks(kWorld, kWorld, 60, [&](const RankEnvironment& where) {
         const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}, .threads = 1});
         const auto group = ProcessGroup::connect(runtime, where, {.backend = "tcp"});
         EmbeddingBagConfig table{.name = "t", .num_embeddings = kRows, .embedding_dim = 8};
         const auto tables = validated({table});
         const auto plan = plan_of(runtime, tables, Topology::of(kWorld, kWorld, "cpu"), {sharding}, {});
         auto sharded =
             EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0}})
                 .shard(tables, plan, group);
         const auto batch = KeyedJaggedTensor::from_lengths_sync(
             {"t"}, Tensor::from(zipf_ids(where.rank)), Tensor::from(std::vector<int32_t>(kBags, int32_t{kIds})));
         sharded.forward(batch, false, /*keep_for_backward=*/false).wait();
         group->barrier();
         std::string line;
         for (const int64_t bytes : sharded.last_traffic().ids_sent) line += str_cat(bytes, ' ');
         return line;
       })) {
    std::istringstream line(text);
    out[rank] += kBags * kIds;
    for (size_t owner = 0; owner < kWorld; ++owner) {
      int64_t bytes = 0;
      line >> bytes;
      // A payload has its ids, and a word per bag plus one.
      const double ids = static_cast<double>(bytes - int64_t{4} * (kBags + 1)) / 8;
      out[rank] -= ids;
      out[owner] += ids;
    }
    ++rank;
  }
  return out;
}

TEST(HotRows, NoRankServesThePopularRowsForAll) {
  const TestDirectory folder;
  std::string line = "t";
  for (int row = 0; row < 256; ++row) line += str_cat(" ", row);
  const auto busiest = [](const std::vector<double>& ids) {
    const double sum = std::accumulate(ids.begin(), ids.end(), 0.0);
    EXPECT_NEAR(sum, kWorld * kBags * kIds, kWorld * kWorld);
    return *std::max_element(ids.begin(), ids.end()) / (sum / kWorld);
  };
  EXPECT_GT(busiest(looked_up("row_wise")), 1.5);
  EXPECT_LT(busiest(looked_up(str_cat("hot_rows?file=", folder.write("hot", line + "\n")))), 1.1);
}

}  // namespace
}  // namespace tessera::test::hot_rows_test
