// `tessera train` as users call it: same losses on any number of ranks, under any plan and across a checkpoint; and its
// messages when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "job_file.h"
#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::training_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Two epochs of 51 batches, the last two with 24 and 23 samples, so that 2 or 4 ranks get unequal parts.
const std::string kConfig = small_job({.samples = 1615, .test_samples = 300, .epochs = 2});
constexpr size_t kSteps = 100;

class Training : public testing::Test, protected JobFile {
 protected:
  Training() : JobFile(kConfig) {}
  // Trains and returns the report. With 2 `hosts`, each has half of the ranks.
  json train(int ranks, const Arguments& more, int hosts = 1) const {
    Arguments args = command(hosts == 1 ? ranks : 0, more);
    if (std::find(more.begin(), more.end(), "--max-steps") == more.end())
      args.insert(args.end(), {"--max-steps", str_cat(kSteps)});
    succeed(run_tessera(hosts == 1 ? args : on_hosts(hosts, ranks, args)));
    return report();
  }

  // Compares losses and test figures of two jobs to 1e-4 relative. `b` may have begun later than `a`.
  static void expect_same(const json& a, const json& b) {
    ASSERT_EQ(losses_of(a).size(), kSteps);
    expect_same_losses(a, b);
    for (const char* figure : {"auc", "logloss", "normalized_entropy", "calibration"}) {
      const double x = a.at("test").at(figure), y = b.at("test").at(figure);
      EXPECT_LE(std::abs(x - y), 1e-4 * x) << figure;
    }
  }
};

constexpr const char* kRowWiseState = "table_defaults.optimizer={name=\"exact_rowwise_adagrad\",learning_rate=0.05}";
constexpr const char* kSgd = "table_defaults.optimizer={name=\"exact_sgd\",learning_rate=0.1}";

Arguments sharded(const std::string& type) { return {"--set", "table_defaults.sharding=" + type}; }

TEST_F(Training, LearnsSomething) {
  const std::vector<double> curve = losses_of(train(1, {}));
  ASSERT_EQ(curve.size(), kSteps);
  double first = 0, last = 0;
  for (size_t i = 0; i < 20; ++i) first += curve[i], last += curve[kSteps - 20 + i];
  EXPECT_LT(last, 0.9 * first);
}

class TrainingUnder : public Training, public testing::WithParamInterface<const char*> {};

TEST_P(TrainingUnder, AnyPlanAndWorldGivesTheSameLosses) {
  const json one = train(1, {});
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(str_cat(ranks, " ranks"));
    const json many = train(ranks, sharded(GetParam()));
    EXPECT_EQ(many.at("world_size"), ranks);
    for (const json& table : many.at("plan").at("modules").at(0).at("tables")) {
      EXPECT_EQ(table.at("sharding_type"), GetParam());
    }
    expect_same(one, many);
  }
}

INSTANTIATE_TEST_SUITE_P(Sharding, TrainingUnder,
                         testing::Values("table_wise", "row_wise", "column_wise", "data_parallel", "table_row_wise",
                                         "table_column_wise", "grid_shard"),
                         [](const auto& info) { return std::string(info.param); });

// Each rank has tables of only one of the two optimizers; a schedule applies to both.
TEST_F(Training, TablesOfSeveralOptimizersAndTheirScheduleGiveTheSameLosses) {
  const Arguments own = {"--set", "table.c1.optimizer={name=\"exact_sgd\",learning_rate=0.1}", "--set",
                         "table.c2.optimizer={name=\"exact_sgd\",learning_rate=0.1}"};
  const Arguments ranks =
      sharded("table_wise") + Arguments{"--set", "table.c0.ranks=[0]", "--set", "table.c3.ranks=[0]",
                                        "--set", "table.c1.ranks=[1]", "--set", "table.c2.ranks=[1]"};
  const Arguments rates = {"--set", "schedule.tables=[\"linear?steps=50&from=0.5\", \"cosine?to=0.1\"]"};
  const json one = train(1, own);
  expect_same(one, train(2, own + ranks));
  const json scheduled = train(1, own + rates);
  expect_same(scheduled, train(2, own + ranks + rates));
  EXPECT_NE(losses_of(scheduled), losses_of(one));
}

TEST_F(Training, TwoHostsGiveTheSameLosses) {
  const json one = train(1, {});
  for (const char* type : {"table_row_wise", "table_column_wise", "grid_shard"}) {
    SCOPED_TRACE(type);
    const json many = train(4, sharded(type), 2);
    EXPECT_EQ(many.at("plan").at("local_world_size"), 2);
    expect_same(one, many);
  }
}

TEST_F(Training, OptimizersOfTablesThatAreCutByRows) {
  for (const char* optimizer : {kSgd, kRowWiseState}) {
    SCOPED_TRACE(optimizer);
    const json one = train(1, {"--set", optimizer});
    expect_same(one, train(4, Arguments{"--set", optimizer} + sharded("row_wise")));
    expect_same(one, train(2, Arguments{"--set", optimizer} + sharded("data_parallel")));
  }
}

TEST_F(Training, ThePlannersOwnChoice) { expect_same(train(1, {}), train(4, {})); }

TEST_F(Training, ByTheFileOfThePlanCommand) {
  const std::string planned = succeed({"plan", "--config", path(), "--world-size", "2", "--format", "json"});
  const json report = train(2, {"--set", "planner.plan=" + folder_.write("plan.json", planned)});
  EXPECT_EQ(report.at("plan"), json::parse(planned));
  expect_same(train(1, {}), report);
}

TEST_F(Training, BatchesWithFewerSamplesThanRanks) {
  const Arguments args = {"--set", "data.batch=3", "--set", "data.samples=151", "--set", "data.test_samples=2"};
  const std::vector<double> one = losses_of(train(1, args)), four = losses_of(train(4, args + sharded("row_wise")));
  ASSERT_EQ(one.size(), kSteps);  // batches of 3, and once in an epoch of 2
  ASSERT_EQ(four.size(), kSteps);
  for (size_t i = 0; i < kSteps; ++i) ASSERT_LE(std::abs(one[i] - four[i]), 1e-4 * one[i] + 1e-6) << "step " << i;
}

struct Resumed {
  int ranks_before;
  const char* before;
  int ranks_after;
  const char* after;
  const char* optimizer;
};

class Resuming : public Training, public testing::WithParamInterface<Resumed> {};

TEST_P(Resuming, EqualsAnUninterruptedRun) {
  const Resumed& p = GetParam();
  const Arguments optimizer = {"--set", p.optimizer};
  const std::string checkpoint = folder_.file("checkpoint");
  const json whole = train(1, optimizer);
  const json start = train(p.ranks_before, optimizer + sharded(p.before) + Arguments{"--save", checkpoint} +
                                               Arguments{"--max-steps", "64"});  // in the second epoch
  EXPECT_EQ(losses_of(start).size(), 64u);
  const json rest = train(p.ranks_after, optimizer + sharded(p.after) + Arguments{"--load", checkpoint});
  EXPECT_EQ(rest.at("first_step"), 64);
  EXPECT_EQ(losses_of(rest).size(), kSteps - 64);
  expect_same(whole, rest);
}

constexpr const char* kAdagrad = "table_defaults.optimizer={name=\"exact_adagrad\",learning_rate=0.05}";
constexpr const char* kAdam = "table_defaults.optimizer={name=\"adam\",learning_rate=0.01,eps=1e-3}";

INSTANTIATE_TEST_SUITE_P(Plans, Resuming,
                         testing::Values(Resumed{2, "row_wise", 1, "table_wise", kRowWiseState},
                                         Resumed{1, "table_wise", 4, "row_wise", kRowWiseState},
                                         Resumed{2, "column_wise", 4, "table_row_wise", kAdagrad},
                                         Resumed{4, "grid_shard", 2, "column_wise", kAdagrad},
                                         Resumed{4, "data_parallel", 2, "table_wise", kAdam},
                                         Resumed{2, "table_wise", 2, "data_parallel", kAdagrad}),
                         [](const auto& info) {
                           return str_cat(info.param.before, "_", info.param.ranks_before, "_to_", info.param.after,
                                          "_", info.param.ranks_after);
                         });

TEST_F(Training, SavedOnTheWayIsAsGoodAsSavedAtTheEnd) {
  const std::string checkpoint = folder_.file("checkpoint");
  const json start = train(2, {"--save", checkpoint, "--save-every", "40", "--max-steps", "80"});
  const json rest = train(1, {"--load", checkpoint});
  EXPECT_EQ(rest.at("first_step"), 80);
  expect_same(train(1, {}), rest);
}

// A wrong job, and the message about it.
class WrongJobs : public Training {
 protected:
  // Expects one sentence on standard error, and status 2.
  void expect_refused(const std::string& text, const Arguments& more,
                      const testing::Matcher<std::string>& sentence) const {
    folder_.write("job.toml", text);
    const Finished done = run_tessera(Arguments{"train", "--config", path()} + more, 60);
    test::expect_refused(done, AllOf(sentence, testing::StartsWith("tessera train: ")));
    EXPECT_EQ(std::count(done.output.begin(), done.output.end(), '\n'), 1) << done.output;
  }
};

TEST_F(WrongJobs, KeysAndValues) {
  expect_refused("[data]\nreader = \"synthetic\"\nepocs = 1\n", {},
                 AllOf(HasSubstr("job.toml:3"), HasSubstr("\"epocs\""), HasSubstr("\"epochs\"")));
  expect_refused("[dat]\n", {}, AllOf(HasSubstr("job.toml:1"), HasSubstr("\"dat\""), HasSubstr("\"data\"")));
  expect_refused("[data]\nbatch = \"many\"\n", {},
                 AllOf(HasSubstr("job.toml:2"), HasSubstr("data.batch"), HasSubstr("integer")));
  expect_refused("[data]\nbatch = \n", {}, HasSubstr("job.toml:2"));
  expect_refused("[data]\nbatch = 0\n", {}, AllOf(HasSubstr("job.toml:2"), HasSubstr("data.batch")));
  expect_refused(kConfig, {"--set", "data.bach=3"}, AllOf(HasSubstr("data.bach=3"), HasSubstr("\"batch\"")));
  expect_refused(kConfig, {"--set", "data.batch=x"}, AllOf(HasSubstr("data.batch=x"), HasSubstr("integer")));
  expect_refused(kConfig, {"--set", "data.batch"}, HasSubstr("section.key=value"));
  expect_refused(kConfig, {"--set", "table_defaults.data_type=float64"},
                 HasSubstr("table_defaults.data_type is \"float64\", but must be one of float32, "));
}

TEST_F(WrongJobs, PartsAndTheirOptions) {
  expect_refused(
      kConfig, {"--set", "table_defaults.compute_kernel=foo"},
      AllOf(HasSubstr("there is no compute kernel \"foo\"; the nearest is \"fused\", and there are dense, fused"),
            HasSubstr("table ")));
  expect_refused(kConfig, {"--set", "table_defaults.compute_kernels=[\"fused\",\"fuse\"]"},
                 HasSubstr("there is no compute kernel \"fuse\""));
  expect_refused(kConfig, {"--set", "dense_optimizer.name=adagrad", "--set", "dense_optimizer.momentum=0.9"},
                 HasSubstr("dense_optimizer.momentum = 0.9 has no effect: adagrad takes learning_rate, weight_decay "
                           "and eps"));
  expect_refused(kConfig, {"--set", "dense_optimizer.name=sgd", "--set", "dense_optimizer.beta1=0.8"},
                 HasSubstr("dense_optimizer.beta1 = 0.8 has no effect: sgd takes learning_rate, weight_decay and "
                           "momentum"));
}

TEST_F(WrongJobs, CommandLines) {
  expect_refused(kConfig, {"--bogus"}, HasSubstr("--bogus"));
  expect_refused(kConfig, {"--nproc", "0"}, HasSubstr("--nproc"));
  expect_refused(kConfig, {"--max-steps", "-1"}, HasSubstr("--max-steps"));
  expect_refused(kConfig, {"--max-steps", "few"}, HasSubstr("--max-steps"));
  expect_refused(kConfig, {"--save-every", "5"}, HasSubstr("--save DIR"));
}

TEST_F(WrongJobs, FilesThatAreNotThere) {
  const std::string nowhere = folder_.file("nowhere");
  test::expect_refused(run_tessera({"train", "--config", nowhere}, 60), HasSubstr(nowhere));
  expect_refused(kConfig, {"--set", "data.reader=prepared", "--set", "data.path=" + nowhere}, HasSubstr(nowhere));
  expect_refused(kConfig, {"--set", "planner.plan=" + nowhere}, HasSubstr(nowhere));
  expect_refused(kConfig, {"--load", nowhere}, HasSubstr(nowhere));
  expect_refused(kConfig, {"--set", "report.json=" + nowhere + "/r.json"}, HasSubstr(nowhere));
}

TEST_F(WrongJobs, PluginsThatAreNotThere) {
  expect_refused(kConfig + "[plugins]\nrequire = [\"acme.stripe\"]\n", {}, HasSubstr("\"acme.stripe\""));
  expect_refused(kConfig, {"--set", "model.type=transformer"}, AllOf(HasSubstr("transformer"), HasSubstr("dlrm")));
  expect_refused(kConfig, {"--set", "table_defaults.optimizer.name=exact_adagrd"},
                 AllOf(HasSubstr("exact_adagrd"), HasSubstr("exact_adagrad")));
  expect_refused(kConfig, {"--set", "dense_optimizer.name=adagrd"}, AllOf(HasSubstr("adagrd"), HasSubstr("adagrad")));
  expect_refused(kConfig, {"--set", "job.kernel_plugin=abacus"}, AllOf(HasSubstr("abacus"), HasSubstr("reference")));
  expect_refused(kConfig, {"--set", "table_defaults.sharding=colum_wise"},
                 AllOf(HasSubstr("colum_wise"), HasSubstr("column_wise")));
}

TEST_F(WrongJobs, OfSeveralRanksSayWhichOneFailed) {
  test::expect_refused(
      run_tessera({"train", "--config", path(), "--nproc", "2", "--set", "comm.backend=carrier_pigeon"}, 60),
      AllOf(HasSubstr("\"carrier_pigeon\""), HasSubstr("\"tcp\""), HasSubstr("rank ")));
}

// The process of a launcher's rank; 0 if there is none.
pid_t process_of_rank(pid_t launcher, int rank) {
  std::istringstream children(contents(str_cat("/proc/", launcher, "/task/", launcher, "/children")));
  for (pid_t child = 0; children >> child;) {
    const std::string environment = '\0' + contents(str_cat("/proc/", child, "/environ"));
    if (environment.find(std::string(1, '\0') + str_cat("RANK=", rank) + '\0') != std::string::npos) return child;
  }
  return 0;
}

TEST_F(Training, AKilledRankEndsTheJob) {
  Program job({tessera_path(), "launch", "-n", "3", "--grace", "5", "--", tessera_path(), "train", "--config", path(),
               "--set", "data.epochs=1000000", "--set", "report.log_every=1", "--set", "comm.timeout_s=15"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  while (job.output().find("step 5/") == std::string::npos && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(process_of_rank(job.pid(), rank));
  ASSERT_GT(ranks[1], 0) << job.output();
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_EQ(job.wait(60), 128 + SIGKILL);  // a deadline of 15 s and a grace of 5 s, on a busy machine
  // The launcher ends the other ranks, unless they end by themselves a moment earlier.
  EXPECT_THAT(job.output(), HasSubstr(str_cat("rank 1 (process ", ranks[1], ") was killed by signal 9")));
  for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << "a rank outlived the job";
}

}  // namespace
}  // namespace tessera::test::training_test
