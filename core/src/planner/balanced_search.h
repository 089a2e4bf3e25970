// The default search: options and ranks for which the busiest rank is done early. It is there beside the greedy search
// (planner/greedy/search.h) because that places each table once and for good: where memory is short or loads differ it
// finds no plan or a slower one.
#pragma once

#include "planner/budget.h"
#include "planner/search.h"

namespace tessera {

// Tries a few combinations of options, from little time in sum to fast slowest shards. Each is packed, and the best
// ones are improved shard by shard. Greedy's ranks are tried for the best one, and all of greedy's proposals if that is
// little work; then no plan is worse than greedy's.
SearchOutcome balanced_search(const SearchProblem& problem, Budget& budget);
// Only whether there is a partition: the first that is found, or none.
bool can_be_partitioned(const SearchProblem& problem, Budget& budget);

}  // namespace tessera
