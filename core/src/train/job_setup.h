// The set-up of a job: everything that is fixed before its first step, made from the config and the options.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"
#include "tessera/optim.h"
#include "tessera/step_figures.h"
#include "tessera/train_job.h"
#include "tessera/trainer.h"
#include "train/best_model.h"
#include "train/job_data.h"
#include "train/save_directories.h"
#include "train/saved_run.h"
#include "train/training_metrics.h"
#include "train/validation.h"

namespace tessera {

// A job's model, and the planner's input for it.
struct JobModel {
  std::unique_ptr<ModelTrainer> trainer;
  PlannerOptions planner;
  DenseWork dense;
};

// Made once for a job, and used up by its run, which takes the arriving rows and changes the scores and the trainer.
struct JobSetup {
  static constexpr int64_t kNoEnd = int64_t{1} << 60;  // number of steps of a job on endless rows

  const Runtime& runtime;
  Config config;            // with the name of the reader that is used
  TrainJobOptions options;  // with the folder that validation.restore_best chose
  std::shared_ptr<ProcessGroup> group;
  std::unique_ptr<BestFolder> best_folder;  // null: options.save_best, or the best model is not kept
  SaveDirectories directories;
  HeadMetrics metrics;                      // of the config's metrics.names; it has no samples yet
  std::optional<ValidationScores> scores;   // of the run that this one continues; unset: no validation
  std::optional<TrainingMetrics> training;  // of the config's metrics.training; it has no samples yet
  TrainingData data;
  Samples validation;  // empty: none
  JobModel model;
  nlohmann::ordered_json fingerprint;  // of the data
  std::string arrived;                 // position in the arriving rows to continue from
  std::optional<int64_t> model_step;   // SavedRun::model_step of the checkpoint to continue from
  TrainStart start;
  int64_t steps = 0, per_epoch = 0;  // in all, or kNoEnd
  LearningRateSchedule table_rates, dense_rates;
  std::optional<UnknownIdCounter> vocabularies = {};  // it has no counts yet; unset before the first evaluation

  ModelTrainer& trainer() const { return *model.trainer; }
};

// Reads the data, plans and builds the model, and loads a checkpoint if one is given: TrainJob's constructor.
// Collective.
JobSetup set_up_job(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
                    std::shared_ptr<ProcessGroup> group);

bool is_weighted(const std::vector<DataColumn>& columns);
BatchReader training_batches(const Config& config, const Dataset& data, const ProcessGroup& group);

struct Evaluation {
  MetricValues metrics;
  std::vector<UnknownIds> unknown_ids;  // for columns with a vocabulary
};
// Returns how many samples an evaluation takes at once: `batch`, or 1,024 if that is more and no table has sequences. A
// sample with sequences may have thousands of rows.
int64_t evaluation_batch(int64_t batch, const std::vector<TableConfig>& tables);
// Evaluates the model on these rows, by metrics.names. The result is rank 0's on all ranks. Collective.
Evaluation evaluate(JobSetup& job, const Samples& samples);

}  // namespace tessera
