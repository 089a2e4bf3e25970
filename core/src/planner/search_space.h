// Which options the tables of a model have.
#pragma once

#include <vector>

#include "planner/budget.h"
#include "tessera/planner.h"

namespace tessera {

// Lists the options of every table. When the budget is used up, a table only gets the options of sharders that propose
// few layouts (as seen so far), until an option's shards take at most half of a rank's memory: SearchSpace::narrowed
// counts these tables. Tables that are kept together always get all options. PlannerError(kNoOption): a table is left
// without any.
SearchSpace enumerate_within(const Runtime& runtime, const PlannerOptions& options,
                             const std::vector<PlannerModule>& modules, Budget& budget);

// All of it, whatever time it takes.
SearchSpace enumerate(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules);

}  // namespace tessera
