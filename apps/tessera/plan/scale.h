// Plans a job for several world sizes and predicts what a step of each costs, for `tessera plan --scale`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/planner.h"
#include "tessera/step_figures.h"

namespace tessera::cli {

// "8,64,512": ascending sizes from 1 to 65,536, each a multiple of a host's ranks or smaller. UsageError otherwise.
std::vector<int> world_sizes(const std::string& text, int ranks_per_host);

// A network between hosts: "100Gbit" or "25Gbit,50us" for each host, or the name of a topology file, whose inter_host
// figures count. UsageError otherwise.
LinkFigures network_of(const std::string& text, int ranks_per_host);

struct ScaleJob {
  const Runtime* runtime = nullptr;
  std::vector<PlannerModule> modules;
  PlannerOptions options;  // its topology's world is replaced; batch_size is that of the smallest world
  DenseWork dense;
  int ranks_per_host = 8;
  double host_days = 0;              // mean days between two failures of one host
  double disk_bytes_per_second = 0;  // a host writes checkpoints with
};

// One step under one plan. Seconds and bytes are predictions (step_model.h).
struct ScaledStep {
  int64_t batch = 0;  // per rank
  std::string none;   // why there is no plan; empty: there is one
  StepPrediction step;
  double work() const { return step.seconds - step.exchanges - step.waiting - step.imbalance; }
  double samples_per_second(int ranks) const { return static_cast<double>(batch) * ranks / step.seconds; }
};

struct ScaledWorld {
  int ranks = 0, hosts = 0;
  ScaledStep weak, strong;    // each rank has the smallest world's batch; all ranks together have its batch
  int64_t busiest_bytes = 0;  // memory and disk of the tables on the rank that holds most, under the weak plan
  double save_seconds = 0, save_every_seconds = 0;
  bool has_plan() const { return weak.none.empty() || strong.none.empty(); }
};

std::vector<ScaledWorld> scale(const ScaleJob& job, const std::vector<int>& worlds);

// For a terminal, and as a JSON object with the same numbers.
std::string scale_text(const ScaleJob& job, const std::vector<ScaledWorld>& worlds);
std::string scale_json(const ScaleJob& job, const std::vector<ScaledWorld>& worlds);

}  // namespace tessera::cli
