// A job on two nodes, each with its own launcher, which meet in a directory. One launcher is killed, or its host is cut
// off, and the job goes on with the other's ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "small_job.h"
#include "tessera/error.h"
#include "two_hosts.h"

namespace tessera::test::two_launchers_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr int kSteps = 1000;

class TwoLaunchers : public testing::Test {
 protected:
  // The launcher of node `node`, at `address`; it waits `patience` seconds for the other.
  std::unique_ptr<Program> launcher(int node, const std::string& address, const std::string& patience = "60",
                                    const std::function<void()>& in_child = {}) const {
    std::vector<std::string> command = {tessera_path(), "launch", "-n", "1", "--nnodes", "2"};
    for (const std::string& word : {std::string("--node-rank"),
                                    std::to_string(node),
                                    std::string("--rendezvous"),
                                    folder_.file("meet"),
                                    std::string("--local-addr"),
                                    address,
                                    std::string("--rendezvous-timeout"),
                                    patience,
                                    std::string("--restart-job"),
                                    std::string("5"),
                                    std::string("--elastic"),
                                    std::string("1:2"),
                                    std::string("--"),
                                    tessera_path(),
                                    std::string("train"),
                                    std::string("--config"),
                                    config_,
                                    std::string("--save"),
                                    folder_.file("saved"),
                                    std::string("--save-every"),
                                    std::string("20"),
                                    std::string("--resume"),
                                    std::string("--max-steps"),
                                    std::to_string(kSteps),
                                    std::string("--set"),
                                    std::string("report.log_every=1"),
                                    std::string("--set"),
                                    "report.metrics=" + folder_.file("metrics"),
                                    std::string("--set"),
                                    std::string("job.pipeline=false")})
      command.push_back(word);
    return std::make_unique<Program>(command, in_child);
  }

  // The steps whose losses rank 0 has written so far.
  std::set<int64_t> steps() const {
    std::set<int64_t> out;
    for (const std::string& line : lines_of(contents(folder_.file("metrics")))) {
      const json parsed = json::parse(line, nullptr, false);
      if (!parsed.is_discarded() && parsed.contains("loss")) out.insert(parsed["step"].get<int64_t>());
    }
    return out;
  }
  bool reaches(int64_t step, const Program& launcher) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (steps().empty() || *steps().rbegin() < step) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "no step " << step << " within 60 s:\n" << launcher.output();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  // Waits until there is a checkpoint to continue from.
  bool saves(const Program& launcher) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::error_code none;
    while (std::chrono::steady_clock::now() < deadline) {
      for (const auto& entry : std::filesystem::directory_iterator(folder_.file("saved"), none)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("save-") && name.find_first_not_of("0123456789", 5) == std::string::npos) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no checkpoint within 60 s:\n" << launcher.output();
    return false;
  }
  void expect_all_steps() const {
    EXPECT_EQ(steps().size(), size_t{kSteps});
    EXPECT_EQ(*steps().rbegin(), kSteps);
  }

  TestDirectory folder_;
  std::string config_ =
      folder_.write("job.toml", small_job({.samples = 1615, .test_samples = 32, .epochs = 20, .timeout_s = 3}));
};

TEST_F(TwoLaunchers, OneThatIsKilledCostsItsRanks) {
  const auto first = launcher(0, "127.0.0.1"), second = launcher(1, "127.0.0.1");
  ASSERT_TRUE(saves(*first));
  kill(second->pid(), SIGKILL);
  EXPECT_EQ(first->wait(120), 0) << first->output();
  EXPECT_THAT(first->output(),
              AllOf(HasSubstr("start 1 of the job: 1 rank on each of nodes 0, 1"), HasSubstr("rank 1 died during"),
                    HasSubstr("start 2 of the job: 1 rank on each of node 0"),
                    ContainsRegex("continues from .*/save-[0-9]+, after step [0-9]+")));
  expect_all_steps();
}

// A returning launcher waits until the ranks of the job must be started anyway.
TEST_F(TwoLaunchers, OneThatComesAgainIsInTheNextStart) {
  const auto first = launcher(0, "127.0.0.1");
  auto second = launcher(1, "127.0.0.1");
  ASSERT_TRUE(reaches(20, *first));
  kill(second->pid(), SIGKILL);
  second = launcher(1, "127.0.0.1");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto says = [&](const Program& launcher, const char* text) {
    return launcher.output().find(text) != std::string::npos || std::chrono::steady_clock::now() > deadline;
  };
  while (!says(*second, "meets the others") || !says(*first, "start 2 of the job")) usleep(10000);
  while (std::chrono::steady_clock::now() < deadline) {  // a fast second launcher may already be in start 2
    const std::vector<pid_t> ranks = ranks_of(first->pid());
    for (pid_t rank : ranks) kill(rank, SIGKILL);
    if (!ranks.empty()) break;
  }
  EXPECT_EQ(first->wait(120), 0) << first->output();
  EXPECT_EQ(second->wait(120), 0) << second->output();
  EXPECT_THAT(second->output(), HasSubstr("1 rank on each of nodes 0, 1"));
  expect_all_steps();
}

TEST_F(TwoLaunchers, TheOneOfAHostThatIsCutOffIsLeftOut) {
  TwoHosts hosts;
  SKIP_WITHOUT(hosts);
  const auto first = launcher(0, TwoHosts::address(0), "60", [&] { hosts[0].enter(); });
  const auto second = launcher(1, TwoHosts::address(1), "60", [&] { hosts[1].enter(); });
  ASSERT_TRUE(reaches(40, *first));
  hosts.cut();
  EXPECT_EQ(first->wait(120), 0) << first->output();
  EXPECT_THAT(first->output(),
              AllOf(HasSubstr("rank 1 can no longer be reached"), HasSubstr("1 rank on each of node 0")));
  EXPECT_EQ(second->wait(20), 0) << second->output();
  EXPECT_THAT(second->output(), AllOf(HasSubstr("rank 0 can no longer be reached"),
                                      HasSubstr("start 2 of the job is without this node")));
  expect_all_steps();
}

TEST_F(TwoLaunchers, OneThatStaysAloneSaysWhoIsMissing) {
  expect_refused(
      run_tessera({"launch", "-n", "1", "--nnodes", "2", "--node-rank", "1", "--rendezvous", folder_.file("meet"),
                   "--rendezvous-timeout", "1", "--local-addr", "127.0.0.1", "--", "true"}),
      HasSubstr("only node 1 of 2 came to " + folder_.file("meet") + " within 1 s"), 1);
}

}  // namespace
}  // namespace tessera::test::two_launchers_test
