// A disk that fails while a job saves, at every call that changes a file: the checkpoint before or the new one loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kKilled = 0, kHalf = -1;

class IoFaults : public testing::TestWithParam<int> {
 protected:
  // Goes on, does a step, and saves.
  Finished run(int64_t steps, int fail_at = 0) const {
    const std::string config = folder_.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 9}));
    return run_program({tessera_path(), "train", "--config", config, "--save", saved(), "--resume", "--max-steps",
                        std::to_string(steps)},
                       60, [&] {
                         if (fail_at == 0) return;
                         setenv("LD_PRELOAD", TESSERA_FAILING_DISK, 1);
                         setenv("TESSERA_FAIL_UNDER", saved().c_str(), 1);
                         setenv("TESSERA_FAIL_AT", std::to_string(fail_at).c_str(), 1);
                         setenv("TESSERA_FAIL_WITH", std::to_string(GetParam()).c_str(), 1);
                       });
  }
  std::string saved() const { return folder_.file("saved"); }

  TestFolder folder_;
};

TEST_P(IoFaults, LeaveACheckpointThatLoads) {
#ifdef TESSERA_TEST_SANITIZE
  GTEST_SKIP() << "sanitizers must be loaded first";
#endif
  int64_t steps = 1;
  ASSERT_EQ(run(steps).status, 0);
  int failed = 0;
  for (int call = 1; call < 200; ++call) {
    SCOPED_TRACE(cat("call ", call));
    const Finished faulty = run(steps + 1, call);
    ASSERT_THAT(faulty.output, testing::AllOf(Not(HasSubstr("begins anew")), Not(HasSubstr("passed over"))));
    const bool struck = faulty.output.find("the disk has failed") != std::string::npos;
    // What the one before has left is this one's to go on from.
    const Finished next = run(steps + 1);
    ASSERT_EQ(next.status, 0) << next.output;
    ASSERT_THAT(next.output,
                testing::AnyOf(HasSubstr(cat(", after step ", steps)), HasSubstr(cat(", after step ", steps + 1))));
    if (faulty.status == 0) {
      ASSERT_THAT(next.output, HasSubstr(cat(", after step ", steps + 1))) << "it said it was saved";
    }
    ++steps;
    if (!struck) break;
    ++failed;
  }
  EXPECT_GT(failed, 15) << "a save makes more calls than that";
  EXPECT_LT(failed, 199);
}

INSTANTIATE_TEST_SUITE_P(Some, IoFaults, testing::Values(EIO, kKilled));
INSTANTIATE_TEST_SUITE_P(Long, IoFaults, testing::Values(ENOSPC, EMFILE, EINTR, kHalf));

}  // namespace
}  // namespace tessera::test
