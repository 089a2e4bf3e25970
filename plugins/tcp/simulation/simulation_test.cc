// Runs the transport's engine under network conditions and faults drawn from seeds. To repeat one:
//   tcp_simulation_test --seed 4711 [--rounds 1]
// The options --seed FIRST --seeds COUNT run many others; --rounds 1 runs operations in rounds.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>

#include "scenario.h"

namespace tessera::tcp::simulation {
namespace {

std::string again(uint64_t seed, bool in_rounds = false) {
  return "; again: tcp_simulation_test --seed " + std::to_string(seed) + (in_rounds ? " --rounds 1" : "");
}

// Stops at the third seed that fails.
void simulate_all(uint64_t first, uint64_t count, bool in_rounds = false) {
  int failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; ++seed) {
    const std::string problem = simulate(seed, in_rounds).problem;
    if (problem.empty()) continue;
    ++failed;
    ADD_FAILURE() << Scenario(seed, in_rounds).describe() << again(seed, in_rounds) << "\n" << problem;
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSome = 200;
#else
constexpr uint64_t kSome = 1000;
#endif
TEST(Simulation, Some) { simulate_all(1, kSome); }
TEST(Simulation, InRounds) { simulate_all(1, kSome / 4, true); }
TEST(Long, Simulation) { simulate_all(1001, 100000); }
TEST(Long, SimulationInRounds) { simulate_all(1001, 10000, true); }

// Seeds that have found bugs in the past:
// * 197, 415, 488: a rank that gave up because of a third rank was taken for dead, because the operation had no time
//   left to hear why.
// * 163, 541: several ranks waited for each other because of a third rank, and all were named.
// * 48222: the rank that was named was less far behind than another one.
// * 19501, 85903, 100995: a rank waited in a later operation for data owed in an earlier one, and was blamed for the
//   delay.
// * 130724: a rank did its part of an operation and then left, but was said to have left before that.
TEST(Simulation, Kept) {
  for (uint64_t seed : {197, 415, 488, 163, 541, 48222, 19501, 85903, 100995, 130724}) {
    EXPECT_EQ(simulate(seed).problem, "") << Scenario(seed).describe() << again(seed);
  }
}

// The same seed gives the same job, to the nanosecond; otherwise a failure could not be repeated.
TEST(Simulation, FollowsFromItsSeed) {
  std::set<Duration> took;
  int64_t fetches = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Report first = simulate(seed), second = simulate(seed);
    EXPECT_EQ(first.took, second.took) << seed;
    EXPECT_EQ(first.fetches, second.fetches) << seed;
    took.insert(first.took);
    fetches += first.fetches;
  }
  EXPECT_GT(took.size(), 40u);
  EXPECT_GT(fetches, 100) << "ranks do not share memory here";
}

}  // namespace
}  // namespace tessera::tcp::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  uint64_t first = 0, count = 1;
  bool in_rounds = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t number = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seed") == 0) first = number;
    if (std::strcmp(argv[i], "--seeds") == 0) count = number;
    if (std::strcmp(argv[i], "--rounds") == 0) in_rounds = number != 0;
  }
  if (first == 0) return RUN_ALL_TESTS();
  int failed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string problem = tessera::tcp::simulation::simulate(seed, in_rounds).problem;
    if (count == 1 || !problem.empty()) {
      std::cout << tessera::tcp::simulation::Scenario(seed, in_rounds).describe() << '\n'
                << (problem.empty() ? "fine\n" : problem) << std::endl;
    }
    failed += !problem.empty();
  }
  std::cout << failed << " of " << count << " seeds failed\n";
  return failed == 0 ? 0 : 1;
}
