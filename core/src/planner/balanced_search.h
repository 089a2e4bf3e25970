// The default search: options and ranks for which the busiest rank is done early.
#pragma once

#include "planner/budget.h"
#include "planner/search.h"

namespace tessera {

// A handful of combinations, from little time in sum to fast slowest shards, each packed; the best ones are improved
// shard by shard. TorchRec's proposals are tried too where that is little work.
SearchOutcome balanced_search(const SearchProblem& problem, Budget& budget);
// Only whether there is a partition: the first that is found, or none.
bool can_be_partitioned(const SearchProblem& problem, Budget& budget);

}  // namespace tessera
