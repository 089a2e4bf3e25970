// Which options the tables of a model have.
#pragma once

#include <vector>

#include "planner/budget.h"
#include "tessera/planner.h"

namespace tessera {

// The options of every table. Beyond the budget, a table gets what comes of the sharders that propose least (as seen so
// far), until an option's shards take at most half of a rank's memory: SearchSpace::narrowed counts these. Tables that
// are kept together always get all. PlannerError(kNoOption) when a table is left without any.
SearchSpace enumerate_within(const Runtime& runtime, const PlannerOptions& options,
                             const std::vector<PlannerModule>& modules, Budget& budget);

// All of it, whatever time it takes.
SearchSpace enumerate(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules);

}  // namespace tessera
