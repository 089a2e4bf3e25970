// A disk fails at every call that reads a config, a plan, data, a checkpoint or a model. A program does its usual work,
// or says which file it cannot read. Half of a file is never taken for all of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cerrno>
#include <fstream>

#include "failing_disk.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::read_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ReadFaults : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
#ifdef TESSERA_TEST_SANITIZE
    GTEST_SKIP() << "sanitizers must be loaded first";
#endif
    gzFile data = gzopen(file("clicks.csv.gz").c_str(), "wb");
    gzprintf(data, "label,age,film\n");
    for (int i = 0; i < 400; ++i) gzprintf(data, "%d,%d,film %d\n", i % 3 / 2, i * 7 % 60, i * i % 17);
    gzclose(data);
    succeed({"data", "describe", file("clicks.csv.gz"), "--label", "label", "--output", file("job.toml")});
    std::ofstream(file("plan.json")) << succeed({"plan", "--config", file("job.toml"), "--format", "json"});
    succeed({"train", "--config", file("job.toml"), "--save", file("saved"), "--max-steps", "1"});
    succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--config", file("job.toml")});
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  // `result` extracts the part of the output that must be the same.
  void strike(std::vector<std::string> command, const std::function<std::string(const std::string& output)>& result,
              int least) const {
    const std::string expected = result(succeed(command));
    ASSERT_NE(expected, "");
    command.insert(command.begin(), tessera_path());
    int failed = 0;
    for (int call = 1; call < 400; ++call) {
      SCOPED_TRACE(str_cat("call ", call));
      const DiskFault fault{.under = file(""), .at = call, .with = GetParam(), .reads = true};
      const Finished done = run_program(command, 60, [&] { preload(fault); });
      if (done.status == 0) {
        ASSERT_EQ(result(done.output), expected) << done.output;
      } else {
        ASSERT_THAT(done.status, testing::AnyOf(1, 2)) << done.output;
        ASSERT_THAT(done.output, AllOf(HasSubstr(file("")), Not(HasSubstr("basic_")), Not(HasSubstr("std::"))));
      }
      if (GetParam() == kHalf) {
        ASSERT_EQ(done.status, 0) << done.output;
      }
      if (!has_struck(done.output)) break;
      ++failed;
    }
    EXPECT_GT(failed, least);
    EXPECT_LT(failed, 399);
  }

  TestDirectory folder_;
};

// The lines of an output with this beginning.
std::string lines_with(const std::string& output, const std::string& beginning) {
  std::string out;
  for (const std::string& line : lines_of(output)) {
    if (line.starts_with(beginning)) out += line + '\n';
  }
  return out;
}

TEST_P(ReadFaults, OfAJobThatGoesOn) {
  strike(
      {"train", "--config", file("job.toml"), "--load", file("saved"), "--max-steps", "2", "--set",
       "planner.plan=\"" + file("plan.json") + "\""},
      [](const std::string& output) { return lines_with(output, "test"); }, 15);
}

// A read that fails once is retried. One that keeps failing ends the job: nothing starts from scratch, and the
// checkpoint stays.
TEST_P(ReadFaults, OfAJobThatLooksForItsCheckpoint) {
  const std::vector<std::string> command = {
      tessera_path(), "train", "--config", file("job.toml"), "--save", file("saved"), "--resume", "--max-steps", "1"};
  const auto resumed = [&](int call, int calls) {
    const DiskFault fault{.under = file("saved/save-"), .at = call, .with = GetParam(), .reads = true, .calls = calls};
    return run_program(command, 60, [&] { preload(fault); });
  };
  int struck = 0;
  for (int call = 1; call < 200; call += 3) {
    SCOPED_TRACE(str_cat("call ", call));
    const std::string done = succeed(resumed(call, 1));
    ASSERT_THAT(done, HasSubstr("save-1, after step 1"));
    if (!has_struck(done)) break;
    ++struck;
  }
  EXPECT_GT(struck, 3);
  for (const int call : {1, 3, 12}) {
    if (GetParam() == kHalf) break;
    const Finished done = resumed(call, 1000);
    EXPECT_THAT(done.status, testing::AnyOf(1, 2)) << done.output;
    EXPECT_THAT(done.output, AllOf(HasSubstr(file("saved/save-1")), Not(HasSubstr("starts again:"))));
  }
  EXPECT_EQ(resumed(0, 1).status, 0);
}

TEST_P(ReadFaults, OfAModelThatAnswers) {
  const std::string scores = file("scores.csv");
  strike(
      {"predict", "--model", file("model"), "--data", file("clicks.csv.gz"), "--output", scores},
      [&](const std::string&) { return contents(scores); }, 10);
}

INSTANTIATE_TEST_SUITE_P(Some, ReadFaults, testing::Values(EIO, kHalf));
INSTANTIATE_TEST_SUITE_P(Long, ReadFaults, testing::Values(EMFILE, EINTR, ENOMEM));

}  // namespace
}  // namespace tessera::test::read_faults_test
