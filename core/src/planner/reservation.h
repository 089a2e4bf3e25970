// Reserves the memory of ranks that tables may not use.
#pragma once

#include <vector>

#include "planner/planned_tables.h"
#include "tessera/planner.h"

namespace tessera {

// Throws PlannerError(kInsufficientStorage) if nothing is left for tables.
ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const std::vector<PlannedTable>& tables,
                                const PlannerOptions& options);

ReservedStorage reserve_storage(const std::vector<PlannerModule>& modules, const PlannerOptions& options);

}  // namespace tessera
