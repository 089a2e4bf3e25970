// The events of a simulated job, all drawn from a seed: ranks and operations, weather, and one fault or none.
#pragma once

#include <string>
#include <vector>

#include "tessera/sdk/pairwise.h"
#include "world.h"

namespace tessera::tcp::simulation {

enum class Fault {
  kNone,
  kKilled,     // a rank ends without a word
  kStopped,    // a rank stands still, for a while or for ever
  kCutOff,     // a host's network is gone
  kReset,      // a connection between two ranks breaks
  kLeaves,     // a rank closes its group when it has done some of the operations
  kAborts,     // a rank aborts, from a thread of its own
  kDisagrees,  // a rank does something else than the others
};
inline constexpr int kFaults = 8;
const char* name_of(Fault fault);

struct Operation {
  sdk::OpKind kind = sdk::OpKind::kBarrier;
  int64_t elements = 0;  // about so many, of 4 bytes, for each rank
};

struct Scenario {
  explicit Scenario(uint64_t seed);
  std::string describe() const;

  uint64_t seed = 0;
  int world = 2;
  std::vector<int> hosts;  // by rank
  bool single_copy = true;
  double spin_us = 50;
  double timeout_s = 30;
  Weather weather;
  std::vector<Operation> operations;
  size_t in_flight = 1;  // operations at most
  Duration pause{};      // of a rank between operations, at most

  Fault fault = Fault::kNone;
  int culprit = 0, other = 0;  // ranks; the other end of a connection that breaks
  bool early = false;          // while ranks connect
  Duration when{};             // after the start, or after all have connected
  Duration how_long{};         // of a stop; 0: for ever
  size_t after = 0;            // operations, of a rank that leaves or disagrees
};

struct Report {
  std::string problem;  // what the job did wrong; empty: nothing
  Duration took{};      // in its world
  int64_t fetches = 0;  // out of other ranks' memory
};
Report simulate(uint64_t seed);

}  // namespace tessera::tcp::simulation
