// Combine: rows that came back become the collection's output; and, backward, the output's gradient becomes rows.
#pragma once

#include "distributed/checked_batch.h"
#include "distributed/output_layout.h"
#include "distributed/routed_batch.h"
#include "distributed/row_moves.h"
#include "distributed/wire_layout.h"
#include "wiring/wiring.h"

namespace tessera {

// Moves between the wire (packed) and the output (spread): one target per table feature, with one run per arrival.
// Pooled: of the arrivals of the same columns the first one that has a row for a bag writes it, the others add to it in
// their order; bags without a row become zeros. Local rows are there already, and count as the first. MEAN divides by
// the bag's whole length.
// Sequences: a row for each id that was not dropped goes to where it stood; the others become zeros.
//
// The moves that are the same for every batch, which goes on with list_output().
RowMoves output_moves(const RankWiring& own);
// The batch's: how many rows there are, and where. `moves` are output_moves(own), or those of a batch before; they
// point into `routed` and `wire`.
void list_output(const RankWiring& own, const RoutedBatch& routed, const WireLayout& wire, const OutputLayout& output,
                 RowMoves& moves);

// Moves between the pooled output as the caller has it (packed: a run per table feature, sample by sample) and its
// distinct rows (spread), which samples share by inverse indices: split expands, combine sums the gradients of equal
// rows. They point into themselves.
void list_inverse(const Wiring& wiring, const CheckedBatch& batch, const OutputLayout& output, RowMoves& moves);

}  // namespace tessera
