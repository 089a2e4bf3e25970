// Which tables a model has, in the order in which they are planned.
#pragma once

#include <vector>

#include "tessera/planner.h"

namespace tessera {

// A table of a model with what is known about it.
struct PlannedTable {
  const PlannerModule* module = nullptr;
  const EmbeddingBagConfig* table = nullptr;
  ParameterConstraints constraints;  // is_weighted as the module has it, where it says so
};

// Returns the tables in search order: modules form a tree by their paths, which is walked with a stack, the last child
// first. Checks paths, sizes and constraints: PlannerError(kBadInput). The result points into the arguments.
std::vector<PlannedTable> tables_in_search_order(const std::vector<PlannerModule>& modules,
                                                 const PlannerOptions& options);

}  // namespace tessera
