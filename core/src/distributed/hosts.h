// Which ranks share a host. The core counts on rank r being local rank r % L of host r / L, with one L for all hosts;
// here is where that is found out, and where it is refused when it does not hold.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// A rank's place as its launcher told it. local_world_size 0: nothing.
struct HostClaim {
  int64_t local_rank = 0;
  int64_t local_world_size = 0;
};

// Ranks per host by what the launcher told all ranks; 0 where it told none of them. kInvalidArgument names the first
// rank that does not fit. Gives the same answer on every rank.
int ranks_per_host(std::span<const HostClaim> by_rank);

// The same from the number of each rank's host.
int ranks_per_host(std::span<const int32_t> host_by_rank);

// For a part of the ranks, which need not be regular: then each counts as a host of its own.
int ranks_per_host_or_one(std::span<const int32_t> host_by_rank);

}  // namespace tessera
