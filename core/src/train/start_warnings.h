// Warnings at the start of a job about settings that are allowed and hardly meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/metrics.h"
#include "tessera/optim.h"
#include "tessera/trainer.h"
#include "train/job_data.h"

namespace tessera {

// A job that is about to start: the subject of warnings.
struct StartingJob {
  const Config& config;
  const JobData& data;
  ModelTrainer& trainer;
  const HeadMetrics& metrics;
  int64_t steps = 0;  // of the run; JobSetup::kNoEnd: rows arrive without end
  const LearningRateSchedule &table_rates, &dense_rates;
};

// One sentence for each: comm.lossy on one rank, tables and columns that no layer reads, samples for validation that
// nothing uses, empty histories, rows that do not travel, a schedule or batches to accumulate that are longer than the
// run, and a model of which nothing is trained.
std::vector<std::string> start_warnings(const StartingJob& job);

}  // namespace tessera
