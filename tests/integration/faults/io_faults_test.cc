// A disk fails while a job saves, at every call that changes a file, on rank 0 and on another rank: the previous
// checkpoint or the new one loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "failing_disk.h"
#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::io_faults_test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Case {
  int with;
  int ranks;  // the disk of the last one fails
};

class IoFaults : public testing::TestWithParam<Case> {
 protected:
  // Resumes, does one step, and saves.
  Finished run(int64_t steps, int fail_at = 0) const {
    const std::string config = folder_.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 9}));
    std::vector<std::string> command = {tessera_path(), "train",       "--config",           config, "--save", saved(),
                                        "--resume",     "--max-steps", std::to_string(steps)};
    const bool one = GetParam().ranks == 1;
    if (!one) command.insert(command.end(), {"--nproc", std::to_string(GetParam().ranks)});
    const DiskFault fault{
        .under = saved(), .at = fail_at, .with = GetParam().with, .rank = one ? -1 : GetParam().ranks - 1};
    return run_program(command, 60, [&] { preload(fault); });
  }
  std::string saved() const { return folder_.file("saved"); }

  TestDirectory folder_;
};

TEST_P(IoFaults, LeaveACheckpointThatLoads) {
#ifdef TESSERA_TEST_SANITIZE
  GTEST_SKIP() << "sanitizers must be loaded first";
#endif
  int64_t steps = 1;
  ASSERT_EQ(run(steps).status, 0);
  int failed = 0;
  for (int call = 1; call < 200; ++call) {
    SCOPED_TRACE(str_cat("call ", call));
    const Finished faulty = run(steps + 1, call);
    ASSERT_THAT(faulty.output, testing::AllOf(Not(HasSubstr("starts again")), Not(HasSubstr("skipped a checkpoint"))));
    // This run continues from what the previous one has left.
    const std::string next = succeed(run(steps + 1));
    ASSERT_THAT(next, testing::AnyOf(HasSubstr(str_cat(", after step ", steps)),
                                     HasSubstr(str_cat(", after step ", steps + 1))));
    if (faulty.status == 0) {
      ASSERT_THAT(next, HasSubstr(str_cat(", after step ", steps + 1))) << "it said it was saved";
    }
    ++steps;
    if (!has_struck(faulty.output)) break;
    ++failed;
  }
  EXPECT_GT(failed, GetParam().ranks == 1 ? 15 : 3) << "a save makes more calls than that";
  EXPECT_LT(failed, 199);
}

// A disk that is full for a moment costs a line or two of a run's log, and ends neither the log nor the run.
TEST(IoFaultsOfALog, TakeNoLineThatComesLater) {
#ifdef TESSERA_TEST_SANITIZE
  GTEST_SKIP() << "sanitizers must be loaded first";
#endif
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 9}));
  for (int call = 1;; ++call) {
    const std::string log = folder.file(str_cat("log-", call));
    const Finished done = run_program({tessera_path(), "train", "--config", config, "--max-steps", "4", "--set",
                                       "report.log_every=1", "--set", "report.metrics=" + log},
                                      60, [&] { preload({.under = log, .at = call, .with = ENOSPC}); });
    if (call == 1) {
      EXPECT_THAT(done.output, HasSubstr("cannot write report.metrics to " + log));
      continue;
    }
    EXPECT_EQ(done.status, 0) << done.output;
    int whole = 0;
    for (const std::string& line : lines_of(contents(log))) whole += line.starts_with('{') && line.ends_with('}');
    EXPECT_GE(whole, has_struck(done.output) ? 3 : 4) << contents(log);
    EXPECT_EQ(whole, std::ssize(lines_of(contents(log)))) << "no piece of a line stays";
    if (whole < 4) EXPECT_THAT(done.output, HasSubstr("1 lines of report.metrics or report.tensorboard could not"));
    if (!has_struck(done.output)) return;
    ASSERT_LT(call, 50);
  }
}

INSTANTIATE_TEST_SUITE_P(Some, IoFaults, testing::Values(Case{EIO, 1}, Case{kKilled, 1}, Case{EIO, 2}));
INSTANTIATE_TEST_SUITE_P(Long, IoFaults,
                         testing::Values(Case{ENOSPC, 1}, Case{EMFILE, 1}, Case{EINTR, 1}, Case{kHalf, 1},
                                         Case{kKilled, 2}, Case{ENOSPC, 2}, Case{EINTR, 2}, Case{kHalf, 2}));

}  // namespace
}  // namespace tessera::test::io_faults_test
