// Checks bounds on the cost of the control paths to the busiest of many ranks. To print the figures of one size:
//   tcp_large_simulation_test --ranks 4096 [--latency-us 20] [--message-us 2] [--gbit 100] [--direct 16]
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <sstream>

#include "job.h"

namespace tessera::tcp::simulation {
namespace {

int64_t rounds_of(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

// The length of a grid's rows that needs the fewest messages, as the core chooses it.
int grid_row_of(int ranks) {
  int row = ranks;
  for (int d = 2; d * d <= ranks; ++d) {
    if (ranks % d == 0) row = d;
  }
  return row;
}

const PathCost& path(const LargeReport& report, const std::string& name) {
  for (const PathCost& cost : report.paths) {
    if (cost.name == name) return cost;
  }
  ADD_FAILURE() << "no path \"" << name << "\"";
  static const PathCost kNone;
  return kNone;
}

void expect_messages(const PathCost& cost, int64_t most) {
  EXPECT_LE(cost.sent.messages, most) << cost.name;
  EXPECT_LE(cost.received.messages, most) << cost.name;
}

// Checks the numbers of messages. Barriers and all_gathers cost one for each round. An exchange of a step costs one for
// each rank of the grid's row and column. The end costs one for each near rank.
void check_healthy(int ranks) {
  LargeJob job{.ranks = ranks, .grid_row = grid_row_of(ranks)};
  const LargeReport report = run_large(job);
  EXPECT_EQ(report.problem, "");
  const int64_t rounds = rounds_of(ranks);
  expect_messages(path(report, "barrier"), rounds);
  expect_messages(path(report, "plan, fingerprints"), 4 * rounds);
  const int64_t grid = job.grid_row + ranks / job.grid_row - 2;
  expect_messages(path(report, "step's headers"), grid);
  expect_messages(path(report, "rows and gradients"), 2 * grid);
  expect_messages(path(report, "save"), 7 * rounds);
  expect_messages(path(report, "last barrier"), 3 * rounds);  // others may have ended
  EXPECT_LE(path(report, "last barrier").sent.messages, rounds);
  EXPECT_LE(path(report, "end").sent.messages, 2 * rounds);
  // The plan passes each rank at most once in a round. The other bytes are sizes and digests of all ranks.
  EXPECT_LE(path(report, "plan, fingerprints").sent.bytes,
            rounds * static_cast<int64_t>(job.plan_bytes + 1000) + int64_t{40} * ranks);
  EXPECT_LE(path(report, "save").sent.bytes, int64_t{40} * ranks + int64_t{1000} * rounds);
  for (const PathCost& cost : report.paths) EXPECT_LT(cost.seconds, 1) << cost.name;
}

// A rank learns of a failure from its near ranks, and asks only a few ranks which rank is late.
void check_troubled(int ranks, Trouble trouble, const char* name) {
  const LargeReport report = run_large({.ranks = ranks, .trouble = trouble, .plan_bytes = 1000});
  EXPECT_EQ(report.problem, "");
  const int64_t rounds = rounds_of(ranks), probes = trouble == Trouble::kSlow ? rounds * (rounds + 1) : 0;
  // A rank may learn of the failure while it is still saving.
  EXPECT_LE(path(report, name).sent.messages, (7 + 2) * rounds + probes);
  EXPECT_LE(path(report, "end").sent.messages, ranks - 1);
  EXPECT_LT(path(report, name).seconds, trouble == Trouble::kSlow ? 62 : 1);
}

// Each rank proves itself to rank 0, which sends it one address. Each rank gets the list of all addresses once, and
// sends it to two others.
void check_meeting(int ranks) {
  const PathCost cost = simulate_meeting(ranks, {});
  EXPECT_LE(cost.sent.messages, 4 * ranks + 20);
  EXPECT_LE(cost.received.messages, 2 * ranks + 20);
  EXPECT_LE(cost.sent.bytes, 500 * ranks);
  EXPECT_LT(cost.seconds, 1);
}

// Returns a sentence that says which option is wrong; empty if none is.
std::string read_options(const std::vector<std::string>& words, LargeJob& job) {
  double ranks = 0, direct = job.direct_world;
  double latency_us = job.network.latency_s * 1e6, message_us = job.network.message_s * 1e6;
  double gbit = job.network.bytes_per_s * 8e-9;
  const struct {
    const char* name;
    double* to;
    double least, most;
  } options[] = {{"--ranks", &ranks, 0, 1e6},
                 {"--direct", &direct, 1, 1e6},
                 {"--latency-us", &latency_us, 0, 1e6},
                 {"--message-us", &message_us, 0, 1e6},
                 {"--gbit", &gbit, 1e-3, 1e6}};
  for (size_t i = 0; i < words.size(); i += 2) {
    const auto* option =
        std::find_if(std::begin(options), std::end(options), [&](const auto& one) { return words[i] == one.name; });
    if (option == std::end(options)) return "there is no option " + words[i];
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    char* end = nullptr;
    *option->to = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != 0 || !(*option->to >= option->least && *option->to <= option->most)) {
      std::ostringstream why;
      why.precision(9);
      why << words[i] << " takes a number from " << option->least << " to " << option->most << ", not \"" << value
          << '"';
      return why.str();
    }
  }
  job.ranks = static_cast<int>(ranks);
  job.direct_world = static_cast<int>(direct);
  job.network = {latency_us * 1e-6, message_us * 1e-6, gbit * 1e9 / 8};
  return "";
}

class Large : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = cannot_reach(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};
TEST(Reach, IsSaidInASentence) {
  EXPECT_EQ(cannot_reach(64), "");
  EXPECT_EQ(cannot_reach(5000), "the simulation takes 2 to 4096 ranks, the most that tcp connects, not 5000");
}
TEST(Options, AreReadOrRefusedInASentence) {
  LargeJob job;
  EXPECT_EQ(read_options({"--ranks", "100", "--gbit", "25", "--message-us", "3"}, job), "");
  EXPECT_EQ(job.ranks, 100);
  EXPECT_DOUBLE_EQ(job.network.bytes_per_s, 25e9 / 8);
  EXPECT_EQ(read_options({"--rank", "8"}, job), "there is no option --rank");
  EXPECT_EQ(read_options({"--ranks"}, job), "--ranks takes a number from 0 to 1000000, not \"\"");
  EXPECT_EQ(read_options({"--ranks", "8x"}, job), "--ranks takes a number from 0 to 1000000, not \"8x\"");
  EXPECT_EQ(read_options({"--gbit", "0"}, job), "--gbit takes a number from 0.001 to 1000000, not \"0\"");
  EXPECT_EQ(read_options({"--latency-us", "nan"}, job), "--latency-us takes a number from 0 to 1000000, not \"nan\"");
}
TEST_P(Large, Healthy) { check_healthy(GetParam()); }
TEST_P(Large, DeadRank) { check_troubled(GetParam(), Trouble::kDead, "dead rank"); }
TEST_P(Large, SlowRank) { check_troubled(GetParam(), Trouble::kSlow, "slow rank"); }
TEST_P(Large, Meeting) { check_meeting(GetParam()); }
TEST_P(Large, BookkeepingGrowsWithTheRanks) {
  EXPECT_LE(bookkeeping_of(GetParam()), static_cast<size_t>(GetParam()) * 2048 + 65536);
}
INSTANTIATE_TEST_SUITE_P(Some, Large, testing::Values(17, 64, 100, 256));
INSTANTIATE_TEST_SUITE_P(Long, Large, testing::Values(1024, 4096));

void print(const PathCost& cost) {
  std::printf("%-20s %9lld %12lld %9lld %12lld %11.3f\n", cost.name.c_str(), static_cast<long long>(cost.sent.messages),
              static_cast<long long>(cost.sent.bytes), static_cast<long long>(cost.received.messages),
              static_cast<long long>(cost.received.bytes), 1e3 * cost.seconds);
}

void print_all(const LargeJob& job) {
  std::printf("%d ranks: the busiest rank of each path\n%-20s %9s %12s %9s %12s %11s\n", job.ranks, "path", "sent",
              "bytes", "received", "bytes", "virtual ms");
  print(simulate_meeting(job.ranks, job.network));
  for (const Trouble trouble : {Trouble::kNone, Trouble::kDead, Trouble::kSlow}) {
    LargeJob one = job;
    one.trouble = trouble;
    const LargeReport report = run_large(one);
    for (const PathCost& cost : report.paths) {
      if (trouble == Trouble::kNone || cost.name == "dead rank" || cost.name == "slow rank") print(cost);
    }
    std::cout << std::flush << report.problem;
  }
  std::printf("sockets of a rank    %9d\nbookkeeping, bytes   %9zu\n", 2 * (job.ranks - 1), bookkeeping_of(job.ranks));
}

}  // namespace
}  // namespace tessera::tcp::simulation

int main(int argc, char** argv) {
  using namespace tessera::tcp::simulation;
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  LargeJob job{.ranks = 0};
  std::string why = read_options({argv + 1, argv + argc}, job);
  if (why.empty()) why = cannot_reach(job.ranks);
  if (!why.empty()) {
    std::cerr << why << '\n';
    return 2;
  }
  job.grid_row = job.ranks > job.direct_world ? grid_row_of(job.ranks) : job.ranks;
  print_all(job);
  return 0;
}
