// The memory of a rank that tables may not use.
#pragma once

#include <vector>

#include "planner/planned_tables.h"
#include "tessera/planner.h"

namespace tessera {

// PlannerError(kInsufficientStorage) when nothing is left.
ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const std::vector<PlannedTable>& tables,
                                const PlannerOptions& options);

ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const PlannerOptions& options);

}  // namespace tessera
