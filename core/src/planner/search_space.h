// Lists the sharding options of a model's tables.
#pragma once

#include <vector>

#include "planner/budget.h"
#include "tessera/planner.h"

namespace tessera {

// Lists the options of every table. Once the budget is used up, sharders that proposed little so far are asked first,
// and a table gets no more options after one whose shards each take at most half of a rank's memory.
// SearchSpace::narrowed counts these tables. Tables that are kept together always get all options. Throws
// PlannerError(kNoOption) if a table has no option.
SearchSpace enumerate_within(const Runtime& runtime, const PlannerOptions& options,
                             const std::vector<PlannerModule>& modules, Budget& budget);

// Lists all options without a time limit.
SearchSpace enumerate(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules);

}  // namespace tessera
