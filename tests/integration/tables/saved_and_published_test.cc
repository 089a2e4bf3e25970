// A job saves the rows changed since its last checkpoint with all rows, and publishes those changed since its last
// publication (docs/checkpoints.md, docs/online.md). Both equal, bit for bit, the model of a job that does neither, for
// every kernel, and also after it was told to end and was resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "publishing/test_publications.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::saved_and_published_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Tables {
  const char* name;
  const char* kernel;
  const char* sharding;
  bool on_demand;
};

std::string job(const TestDirectory& folder, const Tables& tables) {
  return folder.write("job.toml", str_cat("plugins = {path = [\"", TESSERA_TEST_PLUGINS, "\"]}", R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
publish = {base_every = 4, keep_bases = 1000}
[table_defaults]
optimizer = { name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8 }
compute_kernel = ")",
                                          tables.kernel, "\"\nsharding = [\"", tables.sharding, R"("]
[data]
reader = "synthetic"
columns = 2
rows = [)",
                                          tables.on_demand ? "1000000000" : "3000, 40", R"(]
dense = 3
pooling = 2
index_dist = "zipf:1.05"
samples = 960
test_samples = 200
batch = 32
epochs = 100000
)"));
}

class SavedAndPublished : public testing::TestWithParam<Tables> {
 protected:
  std::vector<std::string> command(const Arguments& more) const {
    return Arguments{tessera_path(), "train", "--config", config_,
                     "--nproc",      "2",     "--set",    "report.json=" + at("report.json")} +
           more;
  }
  // Saves seldom and publishes often.
  std::vector<std::string> both(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--save", at("saved"), "--keep", "100", "--save-every", "4", "--save-full-every",
                             "1000000", "--publish", at("published"), "--every", "3steps"});
    return command(more);
  }
  json trained(std::vector<std::string> command) const {
    succeed(run_program(std::move(command), 120));
    return json::parse(contents(at("report.json")));
  }
  // The model and test of a job that does neither, after this many steps.
  json plain(int64_t steps) const {
    return trained(command({"--max-steps", str_cat(steps), "--save", at(str_cat("plain-", steps))}))
        .value("test", json());
  }
  InferenceModel packed(const std::string& checkpoint) const {
    const std::string path = at(str_cat("packed-", packed_++));
    pack_model(open_float_model(checkpoint).model, path, {});
    return open_packed_model(path);
  }
  std::string at(const std::string& name) const { return folder_.file(name); }
  int64_t last_publication() const { return publishing::publications_in(at("published"), Publication::kDelta).back(); }
  // A directory with the publications after a number.
  std::string chain_behind(int64_t number) const {
    std::string out = at("chain");
    std::filesystem::create_directories(out);
    copy_publication(at("published"), out, Publication::kBase, number + 1);
    for (int64_t n = number + 2; n <= last_publication(); ++n)
      copy_publication(at("published"), out, Publication::kDelta, n);
    return out;
  }
  static void expect_same(const json& a, const json& b) {
    for (const char* key : {"samples", "auc", "logloss"}) EXPECT_EQ(a.at(key).dump(), b.at(key).dump()) << key;
  }

  const TestDirectory folder_;
  const std::string config_ = job(folder_, GetParam());
  mutable int packed_ = 0;
};

TEST_P(SavedAndPublished, AreTheModelOfAJobThatDoesNeither) {
  Program first(both());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(at("saved/save-4")) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_EQ(kill(first.pid(), SIGTERM), 0);
  first.wait(60);
  ASSERT_THAT(first.output(), HasSubstr("stopped by a signal"));

  const json last = json::parse(run_tessera({"model", "inspect", "--json", "--verify", at("saved")}).output);
  ASSERT_EQ(last.at("base"), "save-1") << "it has the rows that changed";
  const auto step = last.at("step").get<int64_t>();
  const int64_t number = last_publication(), between = number / 2;
  ASSERT_GE(between, 2);
  ASSERT_TRUE(plain(step).is_object());
  const InferenceModel want = packed(at(str_cat("plain-", step)));
  EXPECT_EQ(difference(packed(last.at("path")), want), "");
  EXPECT_EQ(difference(model_at(at("published"), number).model(), want), "");
  // Also checks a publication in between, after the other follower has set a mark.
  const auto delta = publishing::read_publication(at("published"), Publication::kDelta, between);
  ASSERT_TRUE(plain(delta.step).is_object());
  EXPECT_EQ(difference(model_at(at("published"), between).model(), packed(at(str_cat("plain-", delta.step)))), "");
  EXPECT_NE(difference(model_at(at("published"), between).model(), want), "");
  int64_t removed = 0;
  for (int64_t n = 2; n <= number; ++n) {
    for (const auto& table : publishing::read_publication(at("published"), Publication::kDelta, n).tables)
      removed += table.removed;
  }
  const json content =
      json::parse(contents(last.at("path").get<std::string>() + "/checkpoint.json")).at("content").at("tables").at(0);
  EXPECT_EQ(removed > 0, GetParam().on_demand) << removed;
  EXPECT_EQ(content.contains("removed") && content.at("removed") > 0, GetParam().on_demand) << content;

  // Resumes from the changes, including states, and publishes from a new base.
  const int64_t end = step + 20;
  const json resumed = trained(both({"--resume", "--max-steps", str_cat(end)}));
  ASSERT_TRUE(resumed.is_object());
  expect_same(resumed.at("test"), plain(end));
  const InferenceModel whole = packed(at(str_cat("plain-", end)));
  EXPECT_EQ(difference(packed(at("saved")), whole), "");
  EXPECT_EQ(resumed.at("publications").at("failed"), 0);
  EXPECT_EQ(difference(model_at(chain_behind(number), last_publication()).model(), whole), "");
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, SavedAndPublished,
    testing::Values(Tables{"cpu", "fused", "row_wise", false},
                    Tables{"tiered", "key_value?cache_rows=400", "row_wise", false},
                    Tables{"dynamic", "dynamic?capacity=300&evict=lru", "hash", true},
                    Tables{"virtual_table", "ssd_virtual_table?capacity=300&evict=lfu&cache_rows=200", "hash", true},
                    Tables{"mch", "mch?zch_size=150&policy=lru&eviction_interval=3", "table_wise", true}),
    [](const testing::TestParamInfo<Tables>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::test::saved_and_published_test
