// From a partition to a better one, a step at a time.
#pragma once

#include "planner/board.h"
#include "planner/chooser.h"

namespace tessera {

// Relieves the busiest rank until that is not possible any more, or until the budget is over: moves a shard away, swaps
// it for a smaller one, gives a table on that rank new places or another option. Every step leaves fewer ranks with as
// much load as the busiest had, so a board never gets worse.
void improve(const Chooser& chooser, Board& board, Budget& budget);

}  // namespace tessera
