// Which figures a plan is made with.
#pragma once

#include <string>

#include "tessera/planner.h"

namespace tessera {

// Those that the options bring, or else typical ones of the topology's device. kFailedPrecondition where there are
// none, or where they are not for such a job.
Machine figures_for(const PlannerOptions& options);

// "typical figures of cuda (TorchRec's assumptions)", "figures measured on ..."
std::string figures_text(const Machine& machine);

}  // namespace tessera
