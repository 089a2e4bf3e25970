// TorchRec's search: its proposers and its partitioner, proposal for proposal (SHARDING.md sections 7 and 8).
#pragma once

#include "planner/budget.h"
#include "planner/search.h"

namespace tessera::torchrec {

SearchOutcome search(const SearchProblem& problem, Budget& budget);

// The greedy partitioner's ranks for one option per table; nothing: it finds no room.
std::optional<Solution> partitioned(const SearchProblem& problem, const std::vector<size_t>& options);

// Looks at ranks that all proposals take, about.
double work_of_proposals(const SearchProblem& problem);

}  // namespace tessera::torchrec
