// The events of a simulated job, all drawn from a seed: ranks, operations, network conditions, and at most one fault.
#pragma once

#include <string>
#include <vector>

#include "tessera/sdk/pairwise.h"
#include "world.h"

namespace tessera::tcp::simulation {

enum class Fault {
  kNone,
  kKilled,     // a rank is killed
  kStopped,    // a rank stops, for a while or forever
  kCutOff,     // a host's network is cut off
  kReset,      // a connection between two ranks breaks
  kLeaves,     // a rank closes its group after some of the operations
  kAborts,     // a rank aborts, from a thread of its own
  kDisagrees,  // a rank starts a different operation from the others
};
inline constexpr int kFaults = 8;
const char* name_of(Fault fault);

struct Operation {
  sdk::OpKind kind = sdk::OpKind::kBarrier;
  int64_t elements = 0;  // approximate number of elements of 4 bytes, per rank
};

struct Scenario {
  // With `in_rounds`, operations take rounds even in these small groups.
  explicit Scenario(uint64_t seed, bool in_rounds = false);
  std::string describe() const;

  uint64_t seed = 0;
  int world = 2;
  int direct_world = 16;
  std::vector<int> hosts;  // per rank
  bool single_copy = true;
  double spin_us = 50;
  double timeout_s = 30;
  Weather weather;
  std::vector<Operation> operations;
  size_t in_flight = 1;  // the most operations in flight
  Duration pause{};      // longest pause of a rank between operations

  Fault fault = Fault::kNone;
  int culprit = 0, other = 0;  // the rank at fault; the other end of a broken connection
  bool early = false;          // true if the fault happens while ranks connect
  Duration when{};             // time of the fault after the start if `early`, otherwise after all have connected
  Duration how_long{};         // duration of a stop; 0: forever
  size_t after = 0;            // operations before a rank leaves or disagrees
};

struct Report {
  std::string problem;  // the job's misbehaviour; empty if there was none
  Duration took{};      // in simulated time
  int64_t fetches = 0;  // loans fetched from other ranks' memory
};
Report simulate(uint64_t seed, bool in_rounds = false);

}  // namespace tessera::tcp::simulation
