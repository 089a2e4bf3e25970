// The report of a job that has trained: collects the figures of all ranks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "tessera/train_job.h"
#include "train/job_run.h"

namespace tessera {

// Collective; valid on rank 0.
RunReport run_report(const JobSetup& job, const RunResult& run, TestResult test);

std::vector<LayerChoice> layers_of(const JobSetup& job);  // of the dense part

// to_json(RunReport) before it is a text.
nlohmann::ordered_json json_of(const RunReport& report);

}  // namespace tessera
