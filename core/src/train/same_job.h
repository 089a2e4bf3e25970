// Checks that all ranks were given the same job. A difference would be noticed only by its consequences, or never.
#pragma once

#include <string>

#include "tessera/config.h"
#include "tessera/process_group.h"
#include "tessera/train_job.h"

namespace tessera {

// The text that must be equal on all ranks: the effective config and the options. Paths, plugins and threads are left
// out because they may differ between machines.
std::string common_job(const Config& config, const TrainJobOptions& options);

// The first line in which two jobs differ, as half a sentence: "[data] batch = 16 instead of batch = 32"; empty: there
// is none.
std::string first_difference(const std::string& job, const std::string& first_job);

// kFailedPrecondition, on all ranks: names the first rank whose job differs from rank 0's, and the difference.
// Collective.
void check_same_job(const ProcessGroup& group, const Config& config, const TrainJobOptions& options);

}  // namespace tessera
