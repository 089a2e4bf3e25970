// Whether all ranks were given the same job: what differs would not be noticed later, or only by its consequences.
#pragma once

#include <string>

#include "tessera/config.h"
#include "tessera/process_group.h"
#include "tessera/train_job.h"

namespace tessera {

// What has to be equal on all ranks: the effective config without paths, plugins and threads, which are a machine's own
// matter, then the options.
std::string common_job(const Config& config, const TrainJobOptions& options);

// The first line in which two jobs differ, as half a sentence: "[data] batch = 16 instead of batch = 32"; empty where
// there is none.
std::string first_difference(const std::string& job, const std::string& first_job);

// kFailedPrecondition, on every rank alike, names the first rank whose job is not rank 0's and the difference.
// Collective.
void check_same_job(const ProcessGroup& group, const Config& config, const TrainJobOptions& options);

}  // namespace tessera
