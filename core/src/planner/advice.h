// Changes that would make a plan possible.
#pragma once

#include <string>
#include <vector>

#include "planner/budget.h"
#include "tessera/planner.h"
#include "tessera/runtime.h"

namespace tessera {

// For modules that have no plan under these options: finds single changes after which there is a plan, by trying each
// one: a constraint less, a sharding type more for one table, more memory per rank, more ranks. Returns the end of a
// sentence, "; it would fit without keep_apart of table film, or with 1.5 GiB more of hbm on every rank". It stops with
// the budget, and says so if it found nothing.
std::string advice(const Runtime& runtime, const PlannerOptions& options, const std::vector<PlannerModule>& modules,
                   Budget& budget);

}  // namespace tessera
