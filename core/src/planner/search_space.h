// Which tables a model has, in the order in which they are planned, and which options each of them has.
#pragma once

#include <string>
#include <vector>

#include "planner/budget.h"
#include "planner/cost_model.h"
#include "planner/layout.h"
#include "tessera/planner.h"

namespace tessera {

// A table of a model with what is known about it.
struct PlannedTable {
  const PlannerModule* module = nullptr;
  const EmbeddingBagConfig* table = nullptr;
  ParameterConstraints constraints;  // is_weighted as the module has it, where it says so
};

// Search order: modules form a tree by their paths, which is walked with a stack, the last child first. Checks paths,
// sizes and constraints: PlannerError(kBadInput). The result points into its arguments.
std::vector<PlannedTable> tables_in_search_order(const std::vector<PlannerModule>& modules,
                                                 const PlannerOptions& options);

// What every table may be. Beyond the budget, a table gets what comes of the sharders that propose least (as seen so
// far), until an option's shards take at most half of a rank's memory: SearchSpace::narrowed counts these. Tables that
// are kept together always get all. PlannerError(kNoOption) when a table is left without any.
SearchSpace enumerate_within(const Runtime& runtime, const PlannerOptions& options,
                             const std::vector<PlannerModule>& modules, Budget& budget);

}  // namespace tessera
