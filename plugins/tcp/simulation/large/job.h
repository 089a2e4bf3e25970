// The control paths of a job with many ranks: what each costs the busiest rank, and how long it takes.
#pragma once

#include <string>
#include <vector>

#include "world.h"

namespace tessera::tcp::simulation {

struct PathCost {
  std::string name;
  Traffic sent, received;  // of the rank that has most of each
  double seconds = 0;      // until the last rank is done
};

enum class Trouble { kNone, kDead, kSlow };

struct LargeJob {
  int ranks = 64;
  int grid_row = ranks;  // ranks of a row of the grid through which a step's exchanges travel; it divides `ranks`
  Network network;
  Trouble trouble = Trouble::kNone;  // trouble of the rank in the middle, before the last barrier
  size_t plan_bytes = size_t{64} << 10;
  double timeout_s = 30;
  int direct_world = 16;  // sdk::PairEngineOptions::direct_world
};

struct LargeReport {
  std::vector<PathCost> paths;
  std::string problem;  // what differs from expectation; empty: nothing
};

// Empty, or a sentence that says why the simulation cannot reach this size.
std::string cannot_reach(int ranks);

// Runs a job that connects, plans, makes steps, saves and ends as the core does. With a trouble, it ends when the ranks
// notice it.
LargeReport run_large(const LargeJob& job);

// Simulates the messages of the rendezvous, and of the addresses on their way (rendezvous.h). The transport's own code
// is not run, because it uses sockets that are not simulated.
PathCost simulate_meeting(int ranks, const Network& network);

// Bytes that a rank's engine keeps for its links to the others.
size_t bookkeeping_of(int ranks);

}  // namespace tessera::tcp::simulation
