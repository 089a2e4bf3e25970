// Tests the page of a run, and the comparison of two runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::run_pages_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const std::string kJob = R"(
job = {device = "cpu"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
table = [
  {name = "c0"},
  {name = "c<1>", features = ["c1"]}]
validation = {fraction = 0.2, split = "last"}
metrics = {names = ["auc", "rmse"]}
data = {columns = 2, rows = [40, 300], samples = 2000, test_samples = 300, batch = 100, epochs = 2}
)";

TEST(RunPages, APageHasCurvesMetricsPlanAndStages) {
  const JobFile job(kJob);
  const std::string path = job.file("run.html");
  succeed(job.train(0, {"--nproc", "2", "--html", path}));
  const std::string page = contents(path);
  const size_t data = page.find("{\"title\":");
  ASSERT_NE(data, page.npos);
  const auto parsed = nlohmann::json::parse(page.substr(data, page.find("\n</script>", data) - data));
  EXPECT_EQ(parsed["title"], "tessera train: dlrm on synthetic");
  const auto& run = parsed["parts"][0]["run"];
  EXPECT_EQ(run["losses"].size(), 32u);
  EXPECT_EQ(run["losses_each"], 1);
  EXPECT_EQ(run["validations"].size(), 2u);
  EXPECT_TRUE(run["validations"][0].contains("rmse") && run["stages"].contains("exchange rows"));
  EXPECT_EQ(run["plan"]["modules"][0]["tables"][1]["name"], "c<1>");
  EXPECT_THAT(run["config"], HasSubstr("bottom_mlp = [8, 8]"));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("c<1>")), Not(HasSubstr("src=\"")), Not(HasSubstr("href=\""))));
  expect_refused(job.train(0, {"--html", job.file("no/such/run.html")}), HasSubstr("--html"));
}

TEST(RunPages, ManyLossesAreMeansOfNeighbours) {
  const JobFile job(kJob);
  const std::string path = job.file("run.html");
  succeed(job.train(0, {"--html", path, "--set", "data.batch=2", "--set", "data.epochs=1"}));
  EXPECT_THAT(contents(path), AllOf(HasSubstr("\"steps\":800,"), HasSubstr("\"losses_each\":2")));
}

TEST(RunPages, ReportsAreCompared) {
  const JobFile job(kJob);
  const std::string a = job.file("a.json"), b = job.file("b.json");
  ASSERT_EQ(job.train(0, {"--set", "report.json=" + a}).status, 0);
  ASSERT_EQ(job.train(0, {"--nproc", "2", "--set", "report.json=" + b, "--set", "data.epochs=1", "--set",
                          "table.c<1>.optimizer.learning_rate=0.5", "--set", "metrics.names=[\"auc\", \"mae\"]"})
                .status,
            0);
  EXPECT_THAT(succeed({"report", a, b}),
              AllOf(ContainsRegex("data\\.epochs +2 +1 *\n"), ContainsRegex("ranks +1 +2 *\n"),
                    ContainsRegex("table \"c<1>\"\\.optimizer\\.learning_rate +0\\.05 +0\\.5 *\n"),
                    Not(HasSubstr("optimizer.eps")), Not(HasSubstr("bottom_mlp")), Not(HasSubstr("report.json")),
                    ContainsRegex("train loss +0\\.[0-9]+ +0\\.[0-9]+  [+-]0\\.[0-9]+ \\([+-]"),
                    ContainsRegex("test rmse +0\\.[0-9]+ +- "), ContainsRegex("test mae +- +0\\.[0-9]+"),
                    ContainsRegex("steps +32 +16  -16 \\(-50\\.0 %\\)"),
                    AllOf(HasSubstr("samples_per_s"), HasSubstr("us a step, lookup"))));
  const Finished same = run_tessera({"report", a, a});
  EXPECT_THAT(same.output, HasSubstr("settings: all the same"));
  EXPECT_THAT(run_tessera({"report", a}).output, HasSubstr("two reports are needed, A and B"));
  expect_refused({"report", a, job.file("c.json")},
                 HasSubstr("cannot read the report " + job.file("c.json") + ": No such file"));
  expect_refused({"report", job.write("d.json", "{}"), a},
                 HasSubstr("d.json is not a report of tessera train: it has no \"model\""));
}

}  // namespace
}  // namespace tessera::test::run_pages_test
