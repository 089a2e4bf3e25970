#include "distributed/hosts.h"

#include <algorithm>

#include "tessera/error.h"

namespace tessera {
namespace {

// Returns the first rank r that is not on host r / L, where L is the number of ranks on the first host; the number of
// ranks if there is none.
size_t first_misplaced(std::span<const int32_t> host_by_rank, size_t per_host) {
  for (size_t r = 0; r < host_by_rank.size(); ++r) {
    const bool begins = r % per_host == 0;
    if (!begins && host_by_rank[r] != host_by_rank[r - 1]) return r;
    const auto before = host_by_rank.first(r);
    if (begins && std::find(before.begin(), before.end(), host_by_rank[r]) != before.end()) return r;
  }
  return host_by_rank.size();
}

size_t first_run(std::span<const int32_t> host_by_rank) {
  const auto end = std::find_if(host_by_rank.begin(), host_by_rank.end(),
                                [&](int32_t host) { return host != host_by_rank.front(); });
  return static_cast<size_t>(end - host_by_rank.begin());
}

}  // namespace

int ranks_per_host(std::span<const HostClaim> by_rank) {
  const int64_t world = static_cast<int64_t>(by_rank.size());
  const int64_t per_host = by_rank[0].local_world_size;
  for (int64_t r = 0; r < world; ++r) {
    const HostClaim& claim = by_rank[static_cast<size_t>(r)];
    if ((claim.local_world_size == 0) != (per_host == 0)) {
      fail(Code::kInvalidArgument, "ranks 0 and ", r,
           " disagree: the launcher told one of them how many ranks its "
           "host has, but not the other: set LOCAL_RANK and LOCAL_WORLD_SIZE on every rank or on none");
    }
    if (claim.local_world_size != per_host) {
      fail(Code::kInvalidArgument, "rank 0 is on a host with ", per_host, " ranks, rank ", r, " on one with ",
           claim.local_world_size, ": every host needs the same number");
    }
  }
  if (per_host == 0) return 0;
  if (per_host < 0 || world % per_host != 0) {
    fail(Code::kInvalidArgument, world, " ranks cannot be ", per_host, " per host: every host needs the same number");
  }
  for (int64_t r = 0; r < world; ++r) {
    const int64_t told = by_rank[static_cast<size_t>(r)].local_rank;
    if (told != r % per_host) {
      fail(Code::kInvalidArgument, "rank ", r, " is local rank ", told, " of its host, but with ", per_host,
           " ranks per host it must be ", r % per_host,
           ": number the ranks host by host (mpirun --map-by slot, srun --distribution=block)");
    }
  }
  return static_cast<int>(per_host);
}

int ranks_per_host(std::span<const int32_t> host_by_rank) {
  const size_t per_host = first_run(host_by_rank), world = host_by_rank.size();
  const size_t misplaced = first_misplaced(host_by_rank, per_host);
  if (misplaced < world || world % per_host != 0) {
    const size_t r = std::min(misplaced, world - 1);
    fail(Code::kInvalidArgument, "the transport finds rank ", r, " on an unexpected host: rank 0's host ",
         per_host == 1 ? "has 1 rank" : "begins with " + std::to_string(per_host) + " ranks", ", and of ", world,
         " ranks every host needs the same number, numbered host by host; with LOCAL_RANK=0 and LOCAL_WORLD_SIZE=1 on "
         "every rank, each counts as a host of its own");
  }
  return static_cast<int>(per_host);
}

int ranks_per_host_or_one(std::span<const int32_t> host_by_rank) {
  const size_t per_host = first_run(host_by_rank), world = host_by_rank.size();
  const bool regular = world % per_host == 0 && first_misplaced(host_by_rank, per_host) == world;
  return regular ? static_cast<int>(per_host) : 1;
}

}  // namespace tessera
