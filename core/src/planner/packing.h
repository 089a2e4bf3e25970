// Ranks for one option per table.
#pragma once

#include <optional>
#include <vector>

#include "planner/board.h"
#include "planner/chooser.h"

namespace tessera {

// The table and option that found no room in the last round of pack().
struct PackingFailure {
  size_t option = 0;  // in the search space
  PartitionFailure at;
};

// Puts the tables on an empty board, the most demanding ones first. A table that finds no room tries its other options,
// and is the first one in the next of a few rounds. Unset: the last round failed, and `failure` says where, with the
// option and the table as the board numbers them.
std::optional<Solution> pack(const SearchSpace& space, const std::vector<Storage>& rooms, const Chooser& chooser,
                             const std::vector<size_t>& options, Board::Prefer prefer, Board& board, Budget& budget,
                             PackingFailure& failure);

}  // namespace tessera
