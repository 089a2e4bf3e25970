// The input pipeline of `tessera train`: same losses bit for bit, same errors, and its entries in the report and the
// trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "job_file.h"
#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::pipeline_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two epochs of 13 batches, the last two of which are short, so that two ranks get unequal parts.
const std::string kConfig = small_job({.samples = 399, .test_samples = 64, .epochs = 2});
constexpr int kSteps = 26;

class Pipeline : public testing::Test, protected JobFile {
 protected:
  Pipeline() : JobFile(kConfig) {}
  json report(int ranks, bool pipeline, const Arguments& more = {}) const {
    return trained(ranks, more + settings({str_cat("job.pipeline=", pipeline ? "true" : "false")}));
  }
};

TEST_F(Pipeline, GivesTheSameLossesToTheLastBit) {
  for (const int ranks : {1, 2}) {
    for (const char* type : {"row_wise", "table_wise"}) {
      SCOPED_TRACE(str_cat(ranks, " ranks, ", type));
      const Arguments how = {"--set",        str_cat("table_defaults.sharding=", type),
                             "--save",       folder_.file("checkpoint"),
                             "--save-every", "5",
                             "--overwrite"};
      const json with = report(ranks, true, how), without = report(ranks, false, how);
      ASSERT_EQ(with.at("losses").size(), kSteps);
      EXPECT_EQ(with.at("losses"), without.at("losses"));
      EXPECT_EQ(with.at("test").at("logloss"), without.at("test").at("logloss"));
    }
  }
}

TEST_F(Pipeline, TheReportSaysWhatIsHidden) {
  const json with = report(2, true), without = report(2, false);
  ASSERT_TRUE(with.contains("pipeline"));
  const json& p = with.at("pipeline");
  EXPECT_GT(p.at("work_us_per_step"), 0);
  const double work = p.at("work_us_per_step"), waited = p.at("waited_us_per_step");
  EXPECT_GT(waited, 0);  // for the first batch at least
  EXPECT_NEAR(p.at("hidden_us_per_step").get<double>(), std::max(0.0, work - waited), 1e-6 * work);
  EXPECT_FALSE(without.contains("pipeline"));
}

TEST_F(Pipeline, ContinuesFromACheckpointWhereverThatWasWritten) {
  const json whole = report(1, true);
  report(1, true, {"--max-steps", "9", "--save", folder_.file("nine")});
  const json rest = report(1, true, {"--load", folder_.file("nine")});
  ASSERT_EQ(rest.at("losses").size(), kSteps - 9);
  for (size_t i = 0; i < rest.at("losses").size(); ++i)
    EXPECT_EQ(rest.at("losses").at(i), whole.at("losses").at(i + 9)) << "step " << i + 9;
}

// A rank disappears during training: the others report it, and end.
TEST_F(Pipeline, ALostRankEndsTheOthers) {
  const Arguments base = {"--set", "data.samples=4000000", "--set", "comm.timeout_s=20", "--set", "data.batch=64"};
  for (const char* pipeline : {"true", "false"}) {
    SCOPED_TRACE(pipeline);
    Arguments args = base;
    args.insert(args.end(), {"--set", str_cat("job.pipeline=", pipeline)});
    const std::string config = folder_.write("job.toml", kConfig);
    expect_refused(run_program(Arguments{tessera_path(), "launch", "-n", "2", "--", "/bin/sh", "-c",
                                         "if [ $RANK = 1 ]; then (sleep 3; kill -9 $$) & fi; exec \"$0\" \"$@\"",
                                         tessera_path(), "train", "--config", config} +
                                   args,
                               60),
                   AllOf(HasSubstr("rank 1"), Not(HasSubstr("training has ended"))), 128 + SIGKILL);
  }
}

TEST_F(Pipeline, ATraceShowsAllRanksAndTheInputsBesideTheSteps) {
  const std::string file = folder_.file("trace.json");
  report(2, true, {"--trace", file, "--set", "table_defaults.sharding=row_wise"});
  const json trace = json::parse(contents(file));
  std::map<int, std::set<std::string>> names, threads;  // per rank
  std::set<int> steps;
  int64_t bytes = 0;
  for (const json& e : trace.at("traceEvents")) {
    const int rank = e.at("pid");
    ASSERT_TRUE(rank == 0 || rank == 1);
    if (e.at("ph") == "M") {
      if (e.at("name") == "thread_name") threads[rank].insert(e.at("args").at("name"));
      continue;
    }
    ASSERT_EQ(e.at("ph"), "X");
    EXPECT_GE(e.at("ts"), 0);
    EXPECT_GE(e.at("dur"), 0);
    names[rank].insert(e.at("name"));
    steps.insert(e.at("args").at("step").get<int>());
    if (e.at("name") == "exchange rows") bytes += e.at("args").value("bytes", int64_t{0});
  }
  for (const int rank : {0, 1}) {
    EXPECT_THAT(threads[rank], testing::ElementsAre("inputs", "steps"));
    EXPECT_THAT(names[rank],
                testing::IsSupersetOf({"route", "exchange ids", "lookup", "exchange rows", "combine", "dense forward",
                                       "dense backward", "exchange gradients", "table update", "dense update"}));
  }
  EXPECT_EQ(*steps.begin(), 0);
  EXPECT_EQ(*steps.rbegin(), kSteps - 1);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(trace.at("otherData").at("spans_left_out"), 0);
}

// The disk is full when the job is done: the result of training is still there.
TEST_F(Pipeline, ATraceThatCannotBeWrittenIsAWarning) {
  for (const int nproc : {1, 2}) {
    const std::string done = succeed(train(nproc, {"--trace", "/dev/full"}));
    EXPECT_THAT(done, HasSubstr("warning: cannot write the trace to /dev/full"));
  }
}

// When each stage read the whole text so far, ranks missed a deadline while the trace was written.
TEST_F(Pipeline, ALongTraceHoldsEverySpan) {
  const std::string file = folder_.file("trace.json");
  const Arguments args = {"--trace", file,
                          "--set",   "data.batch=16",
                          "--set",   "data.samples=40000",
                          "--set",   "data.epochs=1",
                          "--set",   "job.pipeline=true"};
  succeed(train(2, args));
  const json trace = json::parse(contents(file));
  EXPECT_GT(trace.at("otherData").at("spans"), 30000);
  int64_t spans = 0;
  for (const json& e : trace.at("traceEvents")) spans += e.at("ph") == "X";
  EXPECT_EQ(trace.at("otherData").at("spans"), spans);
}

TEST_F(Pipeline, ATraceNeedsAFolder) {
  expect_refused(train(1, {"--trace", folder_.file("nowhere/trace.json")}),
                 AllOf(HasSubstr("--trace: there is no directory"), HasSubstr("nowhere")));
}

}  // namespace
}  // namespace tessera::test::pipeline_test
