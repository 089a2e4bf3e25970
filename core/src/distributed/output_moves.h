// Combine: turns received rows into the collection's output and, in the backward, the output's gradient into rows to
// send.
#pragma once

#include "distributed/checked_batch.h"
#include "distributed/output_layout.h"
#include "distributed/routed_batch.h"
#include "distributed/row_moves.h"
#include "distributed/wire_layout.h"
#include "wiring/wiring.h"

namespace tessera {

// Moves between the wire (packed) and the output (spread), with one target per table feature and one run per arrival.
// Pooled: among arrivals of the same columns, the first one with a row for a bag writes it, and the others add to it in
// their order. Bags without a row become zeros. Local rows are already there and count as the first. MEAN divides by
// the bag's whole length. Sequences: the row of each id that was not dropped goes to that id's position; the other
// positions become zeros.
//
// output_moves() lists what is the same for every batch; list_output() then completes it for one batch.
RowMoves output_moves(const RankWiring& own);
// Completes the moves for a batch: the number of rows and their places. `moves` is the result of output_moves(own), or
// was completed for an earlier batch. It then points into `routed` and `wire`.
void list_output(const RankWiring& own, const RoutedBatch& routed, const WireLayout& wire, const OutputLayout& output,
                 RowMoves& moves);

// Lists moves between the pooled output in the caller's form (packed: one run per table feature, sample by sample) and
// its distinct rows (spread), which samples share by inverse indices. split() copies a row to all its samples,
// combine() sums the gradients of equal rows. The lists are stored in `moves` itself.
void list_inverse(const Wiring& wiring, const CheckedBatch& batch, const OutputLayout& output, RowMoves& moves);

}  // namespace tessera
