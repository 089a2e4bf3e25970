// Failures of a job on two hosts: a link that is cut, a rank that stops or never comes, ranks that disagree. Every rank
// ends within the deadline, with a sentence that names the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "two_hosts.h"

namespace tessera::test::two_hosts_failures_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr double kEnough = 20;  // seconds for ranks to start and to end on a busy machine

constexpr const char* kConfig = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp", timeout_s = 2}
model = {embedding_dim = 16, bottom_mlp = [32, 16], top_mlp = [32, 1]}
table_defaults = {sharding = ["row_wise"]}
report = {log_every = 1}
data = {columns = 3, rows = [500, 300, 40], dense = 5, samples = 3200, test_samples = 10, batch = 32, epochs = 1000000}
)";

class TwoHostsFail : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT(hosts_); }

  HostsJob job(const Arguments& more = {}) const {
    HostsJob job{.args = {"train", "--config", folder_.write("job.toml", kConfig)}};
    job.args.insert(job.args.end(), more.begin(), more.end());
    return job;
  }

  // Waits until rank 0 has finished some steps; returns false, with a test failure, if it does not.
  static bool trains(HostsRun& run) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(kEnough);
    while (run.rank(0).output().find("step 5/") == std::string::npos) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "no step within " << kEnough << " s: " << run.rank(0).output();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  static void expect_failed(const Finished& rank, const testing::Matcher<std::string>& sentence) {
    EXPECT_NE(rank.status, 0);
    EXPECT_LT(rank.status, 128) << "killed";
    EXPECT_THAT(rank.output, AllOf(HasSubstr("tessera train: "), sentence));
  }
  // Expects that a job fails alike on all four ranks.
  void expect_all_fail(const HostsJob& job, const testing::Matcher<std::string>& sentence) {
    for (const Finished& rank : HostsRun(hosts_, job).wait(kEnough)) expect_failed(rank, sentence);
  }

  TwoHosts hosts_;
  TestDirectory folder_;
};

class LinkCut : public TwoHostsFail, public testing::WithParamInterface<const char*> {};

TEST_P(LinkCut, EveryRankNamesTheOtherHost) {
  HostsRun run(hosts_, job({"--set", str_cat("table_defaults.sharding=", GetParam())}));
  ASSERT_TRUE(trains(run));
  hosts_.cut();
  const auto start = Clock::now();
  const std::vector<Finished> done = run.wait(kEnough);
  EXPECT_LT(Clock::now() - start, std::chrono::duration<double>(kEnough));
  // With table_row_wise, a rank may wait for the other rank of its host, which waits across the cut. If it began to
  // wait a moment earlier, its deadline passes first, and it names that rank.
  int named = 0;
  for (const int rank : {0, 1, 2, 3}) {
    const char* other_host = rank < 2 ? "ranks 2, 3 can no longer be reached" : "ranks 0, 1 can no longer be reached";
    expect_failed(done[rank],
                  AnyOf(HasSubstr(other_host), AllOf(HasSubstr(" was late: "), HasSubstr("inside the host"))));
    named += done[rank].output.find(other_host) != std::string::npos ? 1 : 0;
  }
  if (std::string_view(GetParam()) == "row_wise") {  // has no exchange inside the host
    EXPECT_EQ(named, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Sharding, LinkCut, testing::Values("row_wise", "table_row_wise"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(TwoHostsFail, WhenARankStops) {
  HostsRun run(hosts_, job());
  ASSERT_TRUE(trains(run));
  ASSERT_EQ(kill(run.rank(3).pid(), SIGSTOP), 0);
  for (const int rank : {0, 1, 2}) {
    run.rank(rank).wait(kEnough);
    expect_failed({1, run.rank(rank).output()}, HasSubstr("rank 3 was late"));
  }
  ASSERT_EQ(kill(run.rank(3).pid(), SIGCONT), 0);
  expect_failed({run.rank(3).wait(kEnough), run.rank(3).output()}, HasSubstr("rank 3 was late"));
}

TEST_F(TwoHostsFail, WhenARankNeverArrives) {
  HostsJob three = job({"--set", "comm.timeout_s=5"});  // enough for three to start on a busy machine
  three.absent = {2};
  const std::vector<Finished> done = HostsRun(hosts_, three).wait(kEnough);
  for (const int rank : {0, 1, 3}) expect_failed(done[rank], HasSubstr("rank 2 of 4 never arrived within 5 s"));
  three.absent = {0};
  const std::vector<Finished> without = HostsRun(hosts_, three).wait(kEnough);
  for (const int rank : {1, 2, 3}) {
    expect_failed(without[rank], HasSubstr("rank 0 of 4 never arrived within 5 s at 10.77.1.1:29500"));
  }
}

TEST_F(TwoHostsFail, OnAPlanForAnotherWorldSize) {
  const std::string made = succeed(
      run_tessera({"plan", "--config", folder_.write("job.toml", kConfig), "--world-size", "2", "--format", "json"}));
  const std::string plan = folder_.write("plan.json", made);
  expect_all_fail(job({"--set", "planner.plan=" + plan}), HasSubstr("2 ranks"));
}

TEST_F(TwoHostsFail, OnAnUnknownShardingType) {
  expect_all_fail(job({"--set", "table_defaults.sharding=colum_wise"}),
                  AllOf(HasSubstr("colum_wise"), HasSubstr("column_wise"), HasSubstr("table_row_wise")));
}

struct Disagreement {
  const char* name;
  Arguments change;  // to rank 3's job
  const char* sentence;
};

class TwoHostsDisagree : public TwoHostsFail, public testing::WithParamInterface<Disagreement> {};

TEST_P(TwoHostsDisagree, AndAllHearOfIt) {
  HostsJob disagree = job();
  disagree.extra = {{}, {}, {}, GetParam().change};
  expect_all_fail(disagree, AllOf(HasSubstr("rank 3 has another job than rank 0: "), HasSubstr(GetParam().sentence)));
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, TwoHostsDisagree,
    testing::Values(
        Disagreement{"rows", {"--set", "data.rows=[500,300,41]"}, "[data] rows = [500, 300, 41] instead of"},
        Disagreement{"tables", {"--set", "data.columns=2", "--set", "data.rows=[500,300]"}, "[data] rows = [500, 300]"},
        Disagreement{"model", {"--set", "model.top_mlp=[16,1]"}, "[model] top_mlp = [16, 1] instead of"},
        Disagreement{"sharding", {"--set", "table_defaults.sharding=table_wise"}, "[table_defaults] sharding = "},
        Disagreement{"dense_optimizer", {"--set", "dense_optimizer.learning_rate=0.5"}, "learning_rate = 0.5 instead"},
        Disagreement{"seed", {"--set", "job.seed=4"}, "[job] seed = 4 instead of seed = 3"},
        Disagreement{"steps", {"--max-steps", "7"}, "--max-steps 7 instead of nothing"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::test::two_hosts_failures_test
