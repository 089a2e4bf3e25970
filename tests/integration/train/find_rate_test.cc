// `tessera tune --find-rate` suggests a learning rate after one run, and leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::find_rate_test {
namespace {

using testing::HasSubstr;

constexpr const char* kRateJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 4, bottom_mlp = [8, 4], top_mlp = [8, 1]}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.02}}
dense_optimizer = {name = "adam", learning_rate = 0.002}
data = {samples = 4000, test_samples = 100, columns = 3, rows = [100], dense = 3, batch = 100}
)";

TEST(FindRate, SuggestsARate) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kRateJob);
  const auto suggested = [&](const std::string& of, const std::string& key) {
    const std::string said = succeed({"tune", config, "--find-rate", of, "--steps", "150"});
    EXPECT_THAT(said, HasSubstr("loss\n"));
    const size_t at = said.find("--set " + key + "=");
    if (at == std::string::npos) return -1.0;
    return std::stod(said.substr(said.find('=', at) + 1));
  };
  const std::string dense = "dense_optimizer.learning_rate", tables = "table_defaults.optimizer.learning_rate";
  EXPECT_GT(suggested("dense", dense), 1e-4);
  EXPECT_LT(suggested("dense", dense), 1);
  EXPECT_EQ(suggested("dense", tables), -1) << "only of the layers";
  EXPECT_GT(suggested("tables", tables), 1e-3);
  EXPECT_NEAR(suggested("all", tables) / suggested("all", dense), 10, 1) << "the same factor of both";
}

// Rates below the config's used to be printed as the config's own.
TEST(FindRate, PrintsTheRatesThatAreTrainedWith) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kRateJob);
  for (const auto& [of, base] : {std::pair{"dense", 0.002}, {"tables", 0.02}}) {
    std::istringstream said(succeed({"tune", config, "--find-rate", of, "--steps", "40"}));
    std::string head;
    std::getline(said, head);
    double rate = 0, loss = 0, last = 0;
    ASSERT_TRUE(said >> rate >> loss);
    EXPECT_LT(rate, base / 100) << of;
    for (last = rate; said >> rate >> loss; last = rate) EXPECT_GT(rate, last) << of;
    EXPECT_GT(last, base) << of;
  }
}

TEST(FindRate, RefusesOptionsOfTrials) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kRateJob);
  const std::vector<std::vector<std::string>> others = {
      {"--trials", "40"}, {"--space", "job.seed=1|2"}, {"--metric", "auc"}, {"--parallel", "1"},
      {"--seed", "1"},    {"--storage", "x"},          {"--html", "x.html"}};
  for (const std::vector<std::string>& other : others)
    expect_refused({"tune", config, "--find-rate", "dense", other[0], other[1]},
                   HasSubstr(other[0] + " is an option of trials"));
  expect_refused({"tune", config, "--steps", "50"}, HasSubstr("--steps is the number of updates of --find-rate"));
}

TEST(FindRate, RefusesWhatMakesNoSense) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kRateJob);
  const std::string own =
      folder.write("own.toml", str_cat(kRateJob, "\n[[table]]\nname = \"c0\"\noptimizer = { name = \"adam\" }\n"));
  expect_refused({"tune", own, "--find-rate", "tables"},
                 HasSubstr("the table \"c0\" has an optimizer of its own, so a rate for all would not be its own"));
  expect_refused({"tune", config, "--find-rate", "layers"},
                 HasSubstr("--find-rate layers: it takes all, tables or dense"));
  expect_refused({"tune", config, "--seed", "-1"}, HasSubstr("--seed must be 0 or more"));
  expect_refused({"tune", config, "--find-rate", "dense", "--steps", "5"}, HasSubstr("needs 30 steps or more"));
  expect_refused({"tune", config, "--find-rate", "dense", "--set", "dense_optimizer.learning_rate=0"},
                 HasSubstr("dense_optimizer.learning_rate must be above 0"));
}

}  // namespace
}  // namespace tessera::test::find_rate_test
