// Greedy search: many proposals, each placed once, table by table. It is TorchRec's search, proposal for proposal
// (tests/conformance/SHARDING.md sections 7 and 8), so that plans can be compared with TorchRec's to the last bit
// (`search = "torchrec"`). The balanced search also starts from its results.
#pragma once

#include "planner/budget.h"
#include "planner/search.h"

namespace tessera::greedy {

SearchOutcome search(const SearchProblem& problem, Budget& budget);

// The greedy partitioner's ranks for one option per table; unset if it finds no room.
std::optional<Solution> partitioned(const SearchProblem& problem, const std::vector<size_t>& options);

// The approximate work of all proposals, in Budget's unit.
double work_of_proposals(const SearchProblem& problem);

}  // namespace tessera::greedy
