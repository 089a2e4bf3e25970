// The machine's figures that a plan is made with.
#pragma once

#include <string>

#include "tessera/planner.h"

namespace tessera {

// Returns the options' machine, or typical figures of the topology's device if that is unset. Throws
// kFailedPrecondition if the device has none, or if the figures do not suit the job.
Machine figures_for(const PlannerOptions& options);

// Describes the source: "typical figures of cuda (TorchRec's assumptions)", "figures measured on ...".
std::string figures_text(const Machine& machine);

}  // namespace tessera
