// Metrics by name in tessera train: same values on any number of ranks, for the core's and for a plugin's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::metrics_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kJob = R"(
job = {device = "cpu"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
data = {reader = "synthetic", columns = 3, rows = [40, 300, 300], samples = 2000, test_samples = 777, batch = 100}
validation = {fraction = 0.2, monitor = "ndcg?k=3&key=c0"}
[metrics]
names = ["auc", "auc?bins=1000", "gauc?key=c0", "ndcg?k=3&key=c0", "recall_at_k?k=2&key=c1",
         "hit_rate?k=2&key=c0", "logloss", "ne", "rmse", "precision?threshold=0.2", "acme.lift?at=0.2"]
)";

class MetricsJob : public testing::Test, protected JobFile {
 protected:
  MetricsJob() : JobFile(kJob) {}
  Finished run(int ranks, const Arguments& more) const {
    return train(ranks, settings({str_cat("plugins.path=", TESSERA_TEST_PLUGINS)}) + more);
  }
};

TEST_F(MetricsJob, RanksMergeExactly) {
  const std::vector<std::string> untrained = {"--max-steps", "0"};
  EXPECT_THAT(succeed(run(1, untrained)), HasSubstr("  gauc?key=c0 0."));
  const json alone = report().at("test");
  EXPECT_EQ(alone.at("samples"), 777);
  succeed(run(3, untrained));
  const json together = report().at("test");
  ASSERT_EQ(alone.size(), 13u) << alone;
  for (const auto& [name, value] : alone.items()) {
    if (name == "seconds") continue;
    ASSERT_TRUE(value.is_number()) << name;
    EXPECT_NEAR(together.at(name).get<double>(), value.get<double>(), 1e-9) << name;
  }
  EXPECT_GT(alone.at("acme.lift?at=0.2").get<double>(), 0);
}

TEST_F(MetricsJob, AnyOfThemSaysWhichValidationIsBest) {
  succeed(run(2, {"--set", "data.epochs=3", "--save-best", folder_.file("best")}));
  double best = 0;
  const json all = report();
  ASSERT_EQ(all.at("validations").size(), 3u);
  for (const json& v : all.at("validations")) {
    const double value = v.at("ndcg?k=3&key=c0").get<double>();
    EXPECT_EQ(v.at("best").get<bool>(), value > best);
    best = std::max(best, value);
  }
  EXPECT_GT(best, 0);
}

// Train, then test: 1600 rows in 16 equal batches, each predicted before it is learned from.
TEST_F(MetricsJob, TrainingBatchesAreJudgedBeforeTheyAreLearnedFrom) {
  const std::string log = folder_.file("log.jsonl");
  const std::vector<std::string> more = {"--set", "metrics.training=[\"logloss\", \"auc?bins=1000\"]",
                                         "--set", "metrics.window=400",
                                         "--set", "validation.split=last",
                                         "--set", "data.shuffle=false",
                                         "--set", "report.metrics=" + log,
                                         "--set", "report.log_every=4"};
  succeed(run(1, more));
  const json alone = report().at("train");
  EXPECT_NEAR(alone.at("metrics").at("lifetime_logloss").get<double>(), alone.at("loss").get<double>(), 1e-6);
  const auto losses = report().at("losses").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 16u);
  double last = 0;
  for (size_t i = 12; i < 16; ++i) last += losses[i] / 4;
  EXPECT_NEAR(alone.at("metrics").at("window_logloss").get<double>(), last, 1e-6);
  std::istringstream lines(contents(log));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_NEAR(json::parse(line).at("training").at("lifetime_logloss").get<double>(),
              (losses[0] + losses[1] + losses[2] + losses[3]) / 4, 1e-6);
  succeed(run(2, more));
  for (const auto& [name, value] : alone.at("metrics").items())
    EXPECT_NEAR(report().at("train").at("metrics").at(name).get<double>(), value.get<double>(), 1e-3) << name;
  expect_refused(run(1, {"--set", "metrics.training=[\"auc\"]"}),
                 HasSubstr("metrics.training has \"auc\", which wants all samples together"));
  expect_refused(run(1, {"--set", "metrics.training=[\"gauc?key=c0\"]"}),
                 HasSubstr("has \"gauc?key=c0\", which wants all samples of a group together"));
}

TEST_F(MetricsJob, WithoutATestPart) {
  EXPECT_THAT(succeed(run(2, {"--set", "data.test_samples=0"})), HasSubstr("there are no test rows"));
  EXPECT_EQ(report().at("test").at("samples"), 0);
  EXPECT_TRUE(report().at("test").at("auc").is_null());
}

TEST_F(MetricsJob, UnknownOnesAreNamedBeforeAnythingIsRead) {
  expect_refused(run(1, {"--set", "metrics.names=[\"acme.lfit\"]", "--set", "data.reader=nothing"}),
                 HasSubstr("there is no metric \"acme.lfit\"; the nearest is \"acme.lift\""));
  expect_refused(run(1, {"--set", "metrics.names=[\"acme.lift?at=2\"]"}), HasSubstr("option \"at\" must be above 0"));
}

}  // namespace
}  // namespace tessera::test::metrics_test
