// From a partition to a better one, a step at a time.
#pragma once

#include "planner/board.h"
#include "planner/chooser.h"

namespace tessera {

// Relieves the busiest rank until that is impossible or the budget is used up: it moves a shard away, swaps it for a
// smaller one, or gives a table on that rank new places or another option. Each step leaves fewer ranks with as much
// load as the busiest one had, so a board never gets worse.
void improve(const Chooser& chooser, Board& board, Budget& budget);

}  // namespace tessera
