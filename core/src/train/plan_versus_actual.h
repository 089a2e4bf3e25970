// Compares the planner's estimate of a step with the run's measurements: per rank and per table.
#pragma once

#include "tessera/step_figures.h"
#include "tessera/train_job.h"
#include "tessera/trainer.h"

namespace tessera {

struct ActualRun {
  Stages warm_up, stages;  // seconds in the first steps, which are left out (empty: none), and in all
  int64_t steps = 0, warm_up_steps = 0;
  ExchangeBytes<int64_t> bytes;  // sent in all steps
};

// Collective; the result is valid on rank 0. `options`: the options that the plan was made with, or would have been.
PlanVersusActual plan_versus_actual(const Runtime& runtime, ModelTrainer& trainer, const PlannerOptions& options,
                                    const DenseWork& dense, const ActualRun& actual);

}  // namespace tessera
