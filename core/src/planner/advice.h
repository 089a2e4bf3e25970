// Suggests changes that would make a plan possible.
#pragma once

#include <string>
#include <vector>

#include "planner/budget.h"
#include "tessera/planner.h"
#include "tessera/runtime.h"

namespace tessera {

// Call it if there is no plan under these options. Tries single changes: dropping a constraint, allowing one table one
// more sharding type, more memory per rank, more ranks. Returns those that help as the end of a sentence, such as "; it
// would fit without keep_apart of table film, or with hbm 1.5 GiB (1610612736 bytes) more on every rank". It stops when
// the budget is used up, and says so if it has found nothing.
std::string advice(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules,
                   Budget& budget);

}  // namespace tessera
