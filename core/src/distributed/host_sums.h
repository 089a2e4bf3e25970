// Between the two hops: rows of this host's lanes for a home elsewhere are added up here before they cross, and on the
// way back gradients of the sums are copied to every lane that has ids of the bag.
#pragma once

#include "distributed/received_batch.h"
#include "distributed/row_moves.h"
#include "distributed/wire_layout.h"

namespace tessera {

// The sums that a rank makes for homes elsewhere: rows of lanes (packed) and sums (spread), both in the tensor of rows.
// A sum has a row for each bag with ids at any of its lanes.
void list_host_sums(const RankWiring& own, const ReceivedBatch& received, const WireLayout& wire, RowMoves& moves);

}  // namespace tessera
