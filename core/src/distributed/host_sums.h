// Between the two hops: rows of this host's lanes for a home elsewhere are added up here before they cross, and on the
// way back gradients of the sums are copied to every lane that has ids of the bag.
#pragma once

#include <vector>

#include "distributed/received_batch.h"
#include "distributed/row_moves.h"
#include "distributed/wire_layout.h"

namespace tessera {

// A lane of a host sum, walked bag by bag.
struct LaneWalk {
  const Presence* presence;
  int64_t at;  // of its next row
};

// What a rank sums for homes elsewhere; `walks` is scratch.
struct HostSums {
  const RankWiring& own;
  const ReceivedBatch& received;
  const WireLayout& wire;
  std::vector<LaneWalk>& walks;
};

// As a device takes it: packed rows of lanes, spread rows of sums: both on the wire.
void list_host_sums(const HostSums& sums, RowMoves& moves);

// Relayed rows -> sums, both in `rows`.
void sum_in_host(const HostSums& sums, float* rows);
// Gradients of sums -> rows of the lanes.
void spread_in_host(const HostSums& sums, float* rows);

}  // namespace tessera
