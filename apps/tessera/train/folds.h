// Trains a job once for each fold of its training rows, each time judged by the rows of that fold.
#pragma once

#include <memory>
#include <string>

#include "tessera/train_job.h"

namespace tessera::cli {

// UsageError: an option of the run has no meaning for several models. `report`: another option that
// reports a run; null: there is none.
void check_folds(const Config& config, const TrainJobOptions& options, const char* report);

// Trains validation.folds models on the group's ranks, one after the other, and prints the best validation of each on
// rank 0, then mean and standard deviation of each metric. Returns the exit status: that of the first run that a signal
// ended. Collective.
int train_folds(const Runtime& runtime, Config config, TrainJobOptions options, std::shared_ptr<ProcessGroup> group);

}  // namespace tessera::cli
