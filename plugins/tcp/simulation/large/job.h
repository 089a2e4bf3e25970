// Measures the control paths of a job with many ranks: the messages of the busiest rank, and the time.
#pragma once

#include <string>
#include <vector>

#include "world.h"

namespace tessera::tcp::simulation {

struct PathCost {
  std::string name;
  Traffic sent, received;  // the most that any rank sends, and receives
  double seconds = 0;      // time until the last rank is done
};

enum class Trouble { kNone, kDead, kSlow };

struct LargeJob {
  int ranks = 64;
  int grid_row = ranks;  // ranks of a row of the grid through which a step's exchanges travel; it divides `ranks`
  Network network;
  Trouble trouble = Trouble::kNone;  // happens to the middle rank before the last barrier
  size_t plan_bytes = size_t{64} << 10;
  double timeout_s = 30;
  int direct_world = 16;  // sdk::PairEngineOptions::direct_world
};

struct LargeReport {
  std::vector<PathCost> paths;
  std::string problem;  // the deviations from what is expected; empty if there are none
};

// Returns a sentence that says why the simulation cannot reach this size; empty if it can.
std::string cannot_reach(int ranks);

// Runs a job that connects, plans, makes steps, saves and ends as the core does. If there is trouble, the job ends when
// the ranks notice it.
LargeReport run_large(const LargeJob& job);

// Simulates the messages of the rendezvous and of the distribution of addresses (rendezvous.h). It does not run the
// transport's own code, which uses sockets that are not simulated.
PathCost simulate_meeting(int ranks, const Network& network);

// Bytes that a rank's engine keeps for its links to the others.
size_t bookkeeping_of(int ranks);

}  // namespace tessera::tcp::simulation
