// Finds out which ranks share a host. The core requires that rank r is local rank r % L of host r / L, with the same L
// for all hosts. These functions find L, and refuse other placements.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// A rank's place as its launcher told it. local_world_size 0: the launcher told nothing.
struct HostClaim {
  int64_t local_rank = 0;
  int64_t local_world_size = 0;
};

// Returns the ranks per host that the launcher told all ranks; 0 if it told none of them. kInvalidArgument names the
// first rank that does not fit. The result is the same on every rank.
int ranks_per_host(std::span<const HostClaim> by_rank);

// Does the same from the number of each rank's host.
int ranks_per_host(std::span<const int32_t> host_by_rank);

// Does the same for a subset of the ranks, which may be irregular: then each rank counts as a host of its own.
int ranks_per_host_or_one(std::span<const int32_t> host_by_rank);

}  // namespace tessera
