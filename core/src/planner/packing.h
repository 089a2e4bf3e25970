// Finds ranks for one option per table.
#pragma once

#include <optional>
#include <vector>

#include "planner/board.h"
#include "planner/chooser.h"

namespace tessera {

// The option that found no room in the last round of pack().
struct PackingFailure {
  size_t option = 0;  // index into SearchSpace::options
  PartitionFailure at;
};

// Puts the tables on an empty board, the most demanding ones first. A table that finds no room tries its other options,
// and goes first in the next of a few rounds. If the last round fails too, the result is unset, and `failure` has the
// option and the shard without room.
std::optional<Solution> pack(const SearchSpace& space, const std::vector<Storage>& rooms, const Chooser& chooser,
                             const std::vector<size_t>& options, Board::Prefer prefer, Board& board, Budget& budget,
                             PackingFailure& failure);

}  // namespace tessera
