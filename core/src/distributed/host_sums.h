// Sums between the two hops. This host's rows for a home elsewhere are added up before they cross to it. On the way
// back, the gradient of a sum is copied to every row route that has ids of the bag.
#pragma once

#include "distributed/received_batch.h"
#include "distributed/row_moves.h"
#include "distributed/wire_layout.h"

namespace tessera {

// Lists the sums that a rank makes for homes elsewhere. Rows of row routes (packed) and sums (spread) are both in the
// tensor of rows. A sum has a row for each bag that has ids at any of its row routes.
void list_host_sums(const RankWiring& own, const ReceivedBatch& received, const WireLayout& wire, RowMoves& moves);

}  // namespace tessera
