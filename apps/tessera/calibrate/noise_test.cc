// Calibrates next to a busy process: the noise is noticed, reported, and the measurement repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "bench/report/circumstances.h"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

// Processes that are busy as long as this lives, enough of them to count as noise on any number of processors.
class Busy {
 public:
  Busy() {
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < processors / 4 + 1; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) asm volatile("");
      }
      if (pid > 0) pids_.push_back(pid);
    }
  }
  ~Busy() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

// Does what `tessera calibrate` does with its ranks, except for the figures.
Calibration measured_in(std::chrono::milliseconds time) {
  const Noise noise;
  std::this_thread::sleep_for(time);
  Machine machine = Machine::typical("cpu");
  machine.name = "sound";
  return {std::move(machine), noise.share()};
}

TEST(CalibrateBesideABusyProcess, MeasuresAgainAndSaysHowLoudItWas) {
  const Busy busy;
  int measured = 0;
  bool known = true;
  std::vector<std::string> said;
  const Machine machine = settled(
      [&] {
        ++measured;
        Calibration c = measured_in(400ms);
        known = known && c.others.has_value();
        return c;
      },
      [&](const std::string& line) { said.push_back(line); });
  if (!known) GTEST_SKIP() << "this system does not say what others use";
  EXPECT_EQ(machine.name, "sound");
  EXPECT_EQ(measured, 3);
  ASSERT_THAT(said, SizeIs(4));
  EXPECT_THAT(said, Each(HasSubstr("other programs used ")));
  EXPECT_THAT(said[0], HasSubstr(" % of the processors: measuring again"));
  EXPECT_THAT(said[3], HasSubstr("the figures are noisy: "));
}

// A calibration's own ranks, which it waits for, do not count as noise. Other programs may run now and then, so one
// quiet attempt is enough.
TEST(CalibrateBesideABusyProcess, OwnRanksAreNoNoise) {
  std::vector<double> shares;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const Noise noise;
    {
      const Busy ranks;  // at least a quarter of the processors
      std::this_thread::sleep_for(400ms);
    }
    const auto share = noise.share();
    if (!share) GTEST_SKIP() << "this system does not say what others use";
    if (*share < 0.15) return;
    shares.push_back(*share);
  }
  const Noise noise;
  std::this_thread::sleep_for(400ms);
  if (noise.share().value_or(1) > 0.05) GTEST_SKIP() << "other programs are busy here";
  FAIL() << "own processes count as others: " << testing::PrintToString(shares);
}

}  // namespace
}  // namespace tessera::cli
