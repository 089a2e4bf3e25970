// Which tables a model has, in the order in which they are planned, and which options each of them has.
#pragma once

#include <string>
#include <vector>

#include "planner/cost_model.h"
#include "planner/layout.h"
#include "tessera/planner.h"

namespace tessera {

// A table of a model with what is known about it.
struct PlannedTable {
  const PlannerModule* module = nullptr;
  const EmbeddingBagConfig* table = nullptr;
  const ParameterConstraints* constraints = nullptr;
};

// Search order: modules form a tree by their paths, which is walked with a stack, the last child first. Checks paths,
// sizes and constraints: PlannerError(kBadInput). The result points into its arguments.
std::vector<PlannedTable> tables_in_search_order(const std::vector<PlannerModule>& modules,
                                                 const PlannerOptions& options);

// PlannerError(kNoOption) when a table is left without any.
SearchSpace enumerate_options(const std::vector<PlannedTable>& tables, const PlannerOptions& options,
                              Sharders& sharders, const std::vector<std::string>& installed, const CostModel& model);

}  // namespace tessera
