// Ranks for one option per table.
#pragma once

#include <optional>
#include <vector>

#include "planner/board.h"
#include "planner/chooser.h"

namespace tessera {

// Puts the tables on an empty board, the most demanding first; a table that finds no room tries its other options, and
// begins the next of a few rounds. Nothing: the last round failed, and `failure` says where, with the option and the
// table as the board knows them.
struct PackingFailure {
  size_t option = 0;  // in the search space
  PartitionFailure at;
};
std::optional<Solution> pack(const SearchSpace& space, const std::vector<Storage>& rooms, const Chooser& chooser,
                             const std::vector<size_t>& options, Board::Prefer prefer, Board& board, Budget& budget,
                             PackingFailure& failure);

}  // namespace tessera
