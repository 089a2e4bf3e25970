// Lets ranks find each other. All knock at rank 0, which sends each rank everybody's address, or in large groups the
// address of one rank that will know the others (kToldByRank0).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "address.h"
#include "tessera/sdk/host.h"
#include "wire.h"

namespace tessera::tcp {

struct RendezvousOptions {
  sdk::Host host;
  int32_t rank = 0;
  int32_t world_size = 1;
  std::string master_addr;  // host name or address of rank 0
  uint16_t master_port = 0;
  std::string token;      // empty: master_addr must be a loopback address
  double timeout_s = 30;  // named in messages
  std::chrono::steady_clock::time_point deadline;
  Proxied proxied;
  // Listens at this rank's own address, the one that reaches master_addr, and returns the port. Called at least once;
  // the last call counts.
  std::function<uint16_t(const Address& own)> listen;
};

struct Meeting {
  GroupId group{};
  std::vector<Address> addresses;  // per rank; empty: ask `teacher` for them (MeshBuilder::learn())
  Address teacher;
};

// Blocks until all ranks have met. If some never arrive, throws Failure(TSR_DEADLINE_EXCEEDED), which names them, on
// every rank.
Meeting meet(const RendezvousOptions& options);

}  // namespace tessera::tcp
