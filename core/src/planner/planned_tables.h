// Lists a model's tables in the order in which they are planned.
#pragma once

#include <vector>

#include "tessera/planner.h"

namespace tessera {

// A table of a model, with its module and constraints.
struct PlannedTable {
  const PlannerModule* module = nullptr;
  const EmbeddingBagConfig* table = nullptr;
  ParameterConstraints constraints;  // is_weighted is the module's, if the module sets it
};

// Returns the tables in search order: the paths of the modules form a tree, which is walked with a stack, the last
// child first. Throws PlannerError(kBadInput) for bad paths, sizes or constraints. The result points into the
// arguments.
std::vector<PlannedTable> tables_in_search_order(const std::vector<PlannerModule>& modules,
                                                 const PlannerOptions& options);

}  // namespace tessera
