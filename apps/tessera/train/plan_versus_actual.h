// What the planner expected of a step, beside what the run measured: per rank and per table.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tessera/step_model.h"
#include "tessera/traffic.h"
#include "train/dlrm_trainer.h"

namespace tessera::cli {

struct ActualRun {
  Stages stages;                 // of all steps, in seconds
  ExchangeBytes<int64_t> bytes;  // sent in all steps
  int64_t steps = 0;
};

// Collective; the result is valid on rank 0. `options` are those that the plan was or would have been made with.
nlohmann::ordered_json plan_versus_actual(const Runtime& runtime, DlrmTrainer& trainer, const PlannerOptions& options,
                                          const DenseWork& dense, const ActualRun& actual);

// As tables for a person.
std::string plan_versus_actual_text(const nlohmann::ordered_json& comparison);

}  // namespace tessera::cli
