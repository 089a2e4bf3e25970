// Sums of unknown ids over the ranks of a job.
#pragma once

#include <vector>

#include "tessera/data.h"
#include "tessera/process_group.h"

namespace tessera {

// Adds up the counts of all ranks, which have the same columns. Collective.
std::vector<UnknownIds> added_up(std::vector<UnknownIds> counts, const ProcessGroup& group);

}  // namespace tessera
