// The default search: it finds options and ranks that make the busiest rank fast. The greedy search
// (planner/greedy/search.h) places each table once and never moves it. If memory is short or loads differ, that finds a
// slower plan, or none.
#pragma once

#include "planner/budget.h"
#include "planner/search.h"

namespace tessera {

// Tries a few combinations of options: some have a small total time, others a fast slowest shard. Each is packed, and
// the best ones are improved shard by shard. It also tries greedy's ranks for the best combination, and all of greedy's
// proposals if that is little work; in that case the plan is never worse than greedy's.
SearchOutcome balanced_search(const SearchProblem& problem, Budget& budget);
// Returns true as soon as it has found any partition.
bool can_be_partitioned(const SearchProblem& problem, Budget& budget);

}  // namespace tessera
