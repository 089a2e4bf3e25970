// Row moves in host memory.
#pragma once

#include "distributed/row_moves.h"

namespace tessera {

// See row_moves.h. The tensors may be the same where no element is both read and written.
void combine_rows(const RowMoves& moves, const float* packed, float* spread);
// One of the moves' targets, from the rows of its only run.
void combine_target(const RowMoves& moves, const RowTarget& target, const float* rows, float* spread);
void split_rows(const RowMoves& moves, float* packed, const float* spread);

}  // namespace tessera
