// `tessera plan` and `tessera train` make the same plan and report the same errors, also when memory runs out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "job_file.h"
#include "tessera_program.h"

namespace tessera::test::plan_command_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Bags of 100 popular ids, which no key describes; with one id each, no table would be replicated.
constexpr const char* kConfig = R"(
job = {threads = 1}
comm = {backend = "tcp", timeout_s = 60}
table = [
  {name = "a", rows = 20000, features = ["c0"]},
  {name = "b", rows = 100000, features = ["c1"]},
  {name = "d", rows = 300000, features = ["c2"]}]
[data]
reader = "synthetic"
columns = 3
rows = [20000, 100000, 300000]
pooling = 100
index_dist = "zipf:1.2"
samples = 3000
test_samples = 10
batch = 512
)";

class PlanCommand : public testing::Test, protected JobFile {
 protected:
  PlanCommand() : JobFile(kConfig) {}
  Arguments command(const std::string& name, const Arguments& more) const {
    return Arguments{name, "--config", path()} + more;
  }
  json planned(const Arguments& more) const {
    const std::string done = succeed(command("plan", {"--world-size", "2", "--format", "json"}) + more);
    return json::parse(done.substr(done.find('{')));
  }
  // The line with which both commands end.
  void expect_both_refused(const Arguments& settings, const testing::Matcher<std::string>& sentence) const {
    for (const char* name : {"plan", "train"}) expect_refused(command(name, settings), sentence);
  }
};

TEST_F(PlanCommand, ShowsThePlanThatTrainTakes) {
  const std::string report = folder_.file("report.json");
  succeed(run_tessera(command("train", {"--nproc", "2", "--max-steps", "1", "--set", "report.json=" + report})));
  const json taken = json::parse(contents(report)).at("plan");
  EXPECT_EQ(planned({}), taken);
  EXPECT_NE(planned({"--no-data"}), taken) << "or this job shows nothing";

  const Finished blind = run_tessera(command("plan", {"--no-data"}));
  EXPECT_THAT(blind.output, HasSubstr("--no-data: assumes pooling_factor or 1 ids per bag"));
  const Arguments missing{"--set", "data.reader=prepared", "--set", "data.path=/nowhere"};
  EXPECT_THAT(run_tessera(command("plan", missing)).output,
              AllOf(HasSubstr("/nowhere"), HasSubstr("--no-data plans without reading it")));
  EXPECT_EQ(run_tessera(command("plan", {"--no-data", missing[0], missing[1], missing[2], missing[3]})).status, 0);
}

TEST_F(PlanCommand, RefusesPartsThatTrainRefuses) {
  expect_both_refused({"--set", "job.kernel_plugin=nonsense"}, HasSubstr("\"nonsense\"; the nearest is \""));
  expect_both_refused({"--set", "comm.backend=nonsense"}, HasSubstr("\"nonsense\"; the nearest is \""));
  expect_both_refused({"--set", "table.b.optimizer={name=\"nonsense\"}"},
                      AllOf(HasSubstr("table b: "), HasSubstr("\"nonsense\"; the nearest is \"")));
  expect_both_refused({"--set", "table.b.optimizer.weight_decay=0.1"},
                      AllOf(HasSubstr("table b: "), HasSubstr("\"weight_decay_mode\" is none: set it to l2")));
}

TEST_F(PlanCommand, SavedPlansKeepToTheConfig) {
  const std::string plan = folder_.write("plan.json", planned({"--set", "table.b.sharding=row_wise"}).dump());
  const Arguments with_plan{"--nproc", "2", "--max-steps", "1", "--set", "planner.plan=" + plan};
  const auto train = [&](const std::string& setting) {
    Arguments all = command("train", with_plan);
    all.insert(all.end(), {"--set", setting});
    return run_tessera(all);
  };
  EXPECT_EQ(train("table.b.sharding=row_wise").status, 0);
  const Finished refused = train("table.b.sharding=table_wise");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.output, HasSubstr("table b: the plan has sharding type row_wise, allowed is table_wise"));
  EXPECT_THAT(run_tessera(command("plan", {"--set", "planner.plan=" + plan})).output,
              HasSubstr("planner.plan: tessera train uses " + plan + "; this is a new plan"));
}

TEST_F(PlanCommand, MemoryMayBeListed) {
  const auto memory = [&](const Arguments& words) {
    Arguments all{"--no-data", "--world-size", "2"};
    all.insert(all.end(), words.begin(), words.end());
    return run_tessera(command("plan", all));
  };
  const std::string listed = memory({"--ddr-gib", "8,4.5"}).output;
  EXPECT_THAT(listed, HasSubstr("table_wise"));
  EXPECT_EQ(memory({"--ddr-gib", "8", "4.5"}).output, listed);
  for (const char* wrong : {"8;4", "8GiB", "x", "8, ,4"}) {
    expect_refused(memory({"--ddr-gib", wrong}),
                   HasSubstr("give one number of GiB for all ranks, such as 40, or one for each, such as "
                             "40,40,80"));
  }
  EXPECT_THAT(memory({"--ddr-gib", "1,2,3"}).output, HasSubstr("ddr_gib has 3 numbers for 2 ranks"));
  EXPECT_THAT(memory({"--ssd-gib", "1,2,3"}).output, HasSubstr("ssd_gib has 3 numbers for 2 ranks"));
  EXPECT_THAT(memory({"--set", "planner.ssd_gib=[1,2,3]"}).output, HasSubstr("ssd_gib has 3 numbers for 2 ranks"));
}

// Runs under a limit on the address space, which sanitizers do not tolerate.
#ifndef TESSERA_TEST_SANITIZE
TEST_F(PlanCommand, OutOfMemoryIsASentenceWithTheSizes) {
  const auto train = [&](const Arguments& settings) {
    Arguments all = command("train", settings);
    all.insert(all.begin(), tessera_path());
    return run_program(all, 120, [] {
      const rlimit limit{512 << 20, 512 << 20};
      setrlimit(RLIMIT_AS, &limit);
    });
  };
  expect_refused(train({"--set", "table.b.rows=100000000", "--set", "planner.ddr_gib=1000"}),
                 AllOf(HasSubstr("table \"b\" with 100000000 rows of 16 columns here, 6400000000 bytes"),
                       HasSubstr("no memory for a block of 6"), Not(HasSubstr("bad_alloc"))),
                 1);
  expect_refused(train({"--set", "data.samples=2000000"}),
                 AllOf(HasSubstr("no memory for "), HasSubstr(" bytes of samples: take fewer")), 1);
}
#endif

}  // namespace
}  // namespace tessera::test::plan_command_test
