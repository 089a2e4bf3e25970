// Improves a partition step by step.
#pragma once

#include "planner/board.h"
#include "planner/chooser.h"

namespace tessera {

// Relieves the busiest rank until that is impossible or the budget is used up. A step moves a shard away, swaps it for
// a smaller one, or places a table of that rank anew, perhaps with another option. After a step, fewer ranks have as
// much load as the busiest one had, so the board never gets worse.
void improve(const Chooser& chooser, Board& board, Budget& budget);

}  // namespace tessera
