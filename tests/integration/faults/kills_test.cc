// Ranks, launchers and whole hosts of a job are killed at random, and the job restarts. It never hangs, never goes back
// before a checkpoint, and its losses equal those of an undisturbed run, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::kills_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int kSteps = 400;

struct Killed {
  int ranks = 0, launchers = 0, hosts = 0;
  int all() const { return ranks + launchers + hosts; }
};

// One job from its first step to its last, whatever is killed meanwhile.
class DisturbedJob {
 public:
  explicit DisturbedJob(std::mt19937& random) : random_(random) {}

  // Kills processes until the job is done. Counts down `kills`, and stops killing at 0.
  void run(int& kills, Killed& killed) {
    while (!testing::Test::HasFailure()) {
      Program launcher(
          command({"launch", "-n", "2", "--restart-job", "1000", "--restart-pause", "0.1", "--", tessera_path()}));
      const bool done = disturb(launcher, kills, killed);
      check_progress(launcher.output());
      if (done) return;
    }
  }
  void run_undisturbed() {
    Program job(command({"launch", "-n", "2", "--", tessera_path()}));
    EXPECT_EQ(job.wait(120), 0) << job.output();
  }

  // The losses by step; a step that was done more than once has several.
  std::multimap<int64_t, double> losses() const {
    std::multimap<int64_t, double> out;
    for (const std::string& line : lines_of(contents(folder_.file("metrics")))) {
      const json parsed = json::parse(line, nullptr, false);
      if (parsed.is_discarded() || !parsed.contains("loss")) continue;  // the rank was killed while writing the line
      out.emplace(parsed["step"], parsed["loss"]);
    }
    return out;
  }

 private:
  std::vector<std::string> command(std::vector<std::string> before) const {
    before.insert(before.begin(), tessera_path());
    const std::string config = folder_.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 9}));
    for (const std::string& word :
         std::vector<std::string>{"train", "--config", config, "--save", folder_.file("saved"), "--save-every", "20",
                                  "--resume", "--max-steps", std::to_string(kSteps), "--set", "report.log_every=1",
                                  "--set", "report.metrics=" + folder_.file("metrics"), "--set", "job.pipeline=false"})
      before.push_back(word);
    return before;
  }

  // Returns true if the job ended by itself.
  bool disturb(Program& launcher, int& kills, Killed& killed) {
    const auto started = std::chrono::steady_clock::now();
    while (kills > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 600));
      const std::vector<pid_t> ranks = ranks_of(launcher.pid());
      if (ranks.empty() && launcher.output().find("AUC") != std::string::npos) break;
      if (std::chrono::steady_clock::now() - started > std::chrono::minutes(5)) break;  // reported below
      if (ranks.empty()) continue;
      --kills;
      if (const uint32_t chance = random_() % 12; chance < 2) {
        if (chance == 0) {  // kills a host: no process there has time to react
          kill(launcher.pid(), SIGSTOP);
          for (const pid_t rank : ranks_of(launcher.pid())) kill(rank, SIGKILL);
        }
        ++(chance == 0 ? killed.hosts : killed.launchers);
        kill(launcher.pid(), SIGKILL);
        EXPECT_EQ(launcher.wait(60), 128 + SIGKILL);
        return false;
      }
      kill(ranks[random_() % ranks.size()], SIGKILL);
      ++killed.ranks;
    }
    EXPECT_EQ(launcher.wait(120), 0) << launcher.output();
    return true;
  }

  // A job that was killed continues from where the last one was, or from later.
  void check_progress(const std::string& output) {
    const std::string text = ", after step ";
    for (const std::string& line : lines_of(output)) {
      int64_t step = line.find("starts again") == std::string::npos ? -1 : 0;
      if (const size_t at = line.find(text); at != std::string::npos) step = std::stoll(line.substr(at + text.size()));
      if (step < 0) continue;
      EXPECT_GE(step, reached_) << "a checkpoint is lost:\n" << output;
      reached_ = step;
    }
  }

  std::mt19937& random_;
  TestDirectory folder_;
  int64_t reached_ = 0;
};

class Kills : public testing::TestWithParam<int> {};

TEST_P(Kills, CostTheWorkSinceTheLastCheckpoint) {
  const int told = GTEST_FLAG_GET(random_seed);
  const uint32_t seed = told != 0           ? static_cast<uint32_t>(told)
                        : GetParam() < 1000 ? 1
                                            : std::random_device()() % 99999;
  SCOPED_TRACE(str_cat("again with --gtest_random_seed=", seed));
  std::mt19937 random(seed);
  DisturbedJob undisturbed(random);
  undisturbed.run_undisturbed();
  std::map<int64_t, double> expected;
  for (const auto& [step, loss] : undisturbed.losses()) expected[step] = loss;
  ASSERT_EQ(expected.size(), size_t{kSteps});
  Killed killed;
  for (int left = GetParam(); left > 0 && !HasFailure();) {
    DisturbedJob job(random);
    job.run(left, killed);
    std::map<int64_t, int> times;
    for (const auto& [step, loss] : job.losses()) {
      EXPECT_EQ(loss, expected.at(step)) << "step " << step;
      ++times[step];
    }
    EXPECT_EQ(times.rbegin()->first, kSteps);
  }
  EXPECT_EQ(killed.all(), GetParam());
  std::cout << killed.ranks << " ranks, " << killed.launchers << " launchers, " << killed.hosts << " hosts killed\n";
}

INSTANTIATE_TEST_SUITE_P(Some, Kills, testing::Values(60));
INSTANTIATE_TEST_SUITE_P(Long, Kills, testing::Values(1000));

}  // namespace
}  // namespace tessera::test::kills_test
