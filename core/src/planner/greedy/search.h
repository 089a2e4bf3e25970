// Greedy search: many proposals, each placed once, table by table. It is there beside the balanced search because it is
// TorchRec's, proposal for proposal (SHARDING.md sections 7 and 8): plans of both programs can be compared to the last
// bit (`search = "torchrec"`), and the balanced search, which starts from it too, is never worse.
#pragma once

#include "planner/budget.h"
#include "planner/search.h"

namespace tessera::greedy {

SearchOutcome search(const SearchProblem& problem, Budget& budget);

// The greedy partitioner's ranks for one option per table; nothing: it finds no room.
std::optional<Solution> partitioned(const SearchProblem& problem, const std::vector<size_t>& options);

// Looks at ranks that all proposals take, about.
double work_of_proposals(const SearchProblem& problem);

}  // namespace tessera::greedy
