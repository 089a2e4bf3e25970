// Between the two hops: rows of this host's row routes for a home elsewhere are added up here before they cross. On the
// way back gradients of the sums are copied to every row route that has ids of the bag.
#pragma once

#include "distributed/received_batch.h"
#include "distributed/row_moves.h"
#include "distributed/wire_layout.h"

namespace tessera {

// The sums that a rank makes for homes elsewhere: rows of row routes (packed) and sums (spread), both in the tensor of
// rows. A sum has a row for each bag with ids at any of its row routes.
void list_host_sums(const RankWiring& own, const ReceivedBatch& received, const WireLayout& wire, RowMoves& moves);

}  // namespace tessera
