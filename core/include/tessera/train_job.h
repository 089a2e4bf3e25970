// tessera/train_job.h - the job of one config file on one rank: data, plan, model, training, checkpoints, evaluation,
// report. `tessera train` adds options and printing.
//
//   const Config config = load_config("job.toml", {});
//   TrainJob job(runtime, config, {.save = "checkpoints"}, group);
//   job.train({});
//   const MetricValues test = job.evaluate();
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/head_metrics.h"
#include "tessera/model_trainer.h"
#include "tessera/online.h"
#include "tessera/process_group.h"
#include "tessera/schedule.h"
#include "tessera/step_model.h"
#include "tessera/train_loop.h"
#include "tessera/unknown_ids.h"

namespace tessera {

class ArrivingBatches;
class BestFolder;
class BestModel;
class JobCheckpoints;
class JobPublisher;
class MetricsLog;
class SaveDirectories;
class TrainingMetrics;
class ValidationScores;

namespace data {
class ArrivingRows;
}

struct TrainJobOptions {
  std::string save;                  // directory for checkpoints, with one at the end; empty: none
  std::string load;                  // checkpoint directory to continue from; empty: none
  std::string start;                 // checkpoint to start a new run with, as far as it fits; empty: none
  int64_t save_every = 0;            // steps between checkpoints; 0: not by steps
  double save_every_minutes = 0;     // minutes between checkpoints; 0: not by time. If both are 0: only one at the end
  int64_t save_full_every = 1;       // one of this many checkpoints has all rows, the others only changed ones
  int keep = 2;                      // checkpoints that stay in `save`
  bool resume = false;               // continue with the newest whole checkpoint in `save`, if there is one
  bool overwrite = false;            // the first checkpoint replaces another run's in `save` or `save_best`
  std::string save_best;             // directory for the checkpoint that validated best; empty: none
  bool new_data = false;             // with `load`: start at the first batch of this job's data
  std::optional<int64_t> max_steps;  // stop after this many steps in all; unset: after the last epoch
  DeviceStreamPtr device;            // of the tables; null: host memory
  std::string trace;                 // file for a trace of the steps; empty: none
};

// Progress of the training.
struct TrainProgress {
  int64_t step = 0, epoch = 0;            // steps done in all, and the epoch of the last one
  int64_t samples = 0;                    // of all ranks, in this run
  double loss = 0;                        // mean over the steps since the last report
  double table_rate = 1, dense_rate = 1;  // factors of the schedules in the last step
  // Values of metrics.training: "lifetime_NAME" and "window_NAME" of each.
  std::vector<std::pair<std::string, double>> training;
};

// The result of one checkpoint.
struct TrainSave {
  int64_t step = 0;    // steps done in all
  double pause_s = 0;  // pause of training
  std::string error;   // reason of a failure, in one sentence; empty: it was written
  bool best = false;   // true: the one in options.save_best
};

// The result of one publication.
struct TrainPublish {
  int64_t step = 0;  // steps done in all
  Published what;
  double pause_s = 0;  // pause of training
  std::string error;   // reason of a failure, in one sentence; empty: it was written
};

// The result of one validation.
struct TrainValidation {
  int64_t step = 0;  // steps done in all
  MetricValues metrics;
  bool best = false;                         // so far, by validation.monitor
  double seconds = 0;                        // its duration
  std::vector<UnknownIds> unknown_ids = {};  // for columns with a vocabulary
};

// Callbacks of a training job. All are optional.
struct TrainWatch {
  std::function<bool()> stop = nullptr;  // TrainLoopOptions::stop
  // Returns true if report() is wanted after a step. It must be the same on all ranks, because they add up their
  // losses.
  std::function<bool(int64_t step)> due = nullptr;
  std::function<void(const TrainProgress& progress)> report = nullptr;
  std::function<void(const TrainValidation& validation)> validated = nullptr;
  // Called on every rank for each checkpoint in options.save and options.save_best, after it was written or failed.
  std::function<void(const TrainSave& save)> saved = nullptr;
  // for each publication in config.publish.directory
  std::function<void(const TrainPublish& publish)> published = nullptr;
};

// Options for connecting a job's ranks, from its [comm] section. `device`: this rank's.
ProcessGroupOptions group_options(const CommConfig& comm, const Device& device);

// Used by one thread. Everything that is not const is collective.
class TrainJob {
 public:
  // Reads the data, plans and builds the model, and loads a checkpoint if one is given. Errors name the problem in
  // config, data or checkpoint. kFailedPrecondition: the ranks have different jobs.
  TrainJob(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
           std::shared_ptr<ProcessGroup> group);
  ~TrainJob();

  // The result of options.start: a summary, then a line for each thing that was not taken. Empty: options.start is
  // unset.
  const std::vector<std::string>& start_notes() const { return start_notes_; }
  int64_t first_step() const { return first_step_; }  // steps done before this run
  // Steps to do in all, including those before this run; 0: unlimited.
  int64_t steps() const { return has_end() ? steps_ : 0; }
  bool has_end() const { return steps_ != kNoEnd; }  // false: rows arrive without end
  // The checkpoint that the job continues from; empty: it starts new.
  const std::string& loaded() const { return loaded_; }
  // Checkpoints that options.resume has skipped, with the reasons.
  const std::vector<std::string>& passed_over() const { return passed_over_; }
  // Warnings for the user, one sentence each.
  std::vector<std::string> warnings() const;
  // Call it once. Problems with the checkpoint directory are reported before the first step. A NaN loss ends the job
  // before it is saved. Between steps, checkpoints are written in the background if there is memory for a copy of the
  // rows; otherwise training waits. A disk error is reported, and the job continues. It saves at the end, whatever the
  // reason.
  void train(const TrainWatch& watch);
  // True if TrainWatch::stop ended training before its last step.
  bool stopped() const;
  // True if validation.patience validations did not improve, so training ended before its last step.
  bool ended_early() const { return ended_early_; }
  const std::vector<TrainValidation>& validations() const { return validations_; }
  int64_t steps_done() const { return loop_ ? loop_->steps_done() : 0; }  // in this run

  // Returns the metrics of the test part, by metrics.names. With options.save_best or validation.restore_best they are
  // for the model that validated best, which the trainer then has; otherwise for the final model.
  MetricValues evaluate();
  // The number of steps of the model that the trainer has at the end, which evaluate() tests.
  int64_t tested_step() const { return tested_step_.value_or(first_step_ + steps_done()); }
  // The best model's checkpoint if it could not be written. options.save_best then has an older one, or none.
  const std::optional<TrainSave>& unsaved_best() const;
  // The directory of the model that validated best: options.save_best, or the one that validation.restore_best chose.
  // Empty: it is not kept.
  const std::string& save_best() const { return options_.save_best; }
  // Unknown ids in the last evaluated rows, over all ranks, for columns with a vocabulary.
  const std::vector<UnknownIds>& unknown_ids() const { return unknown_ids_; }
  // The metric that validation.monitor names; empty: no validation.
  const std::string& monitor() const { return monitor_; }
  // Metrics without values, for report() of a stopped job.
  MetricValues no_metrics() const { return metrics_.values(); }
  // Everything about the run as JSON, for people and programs: stages, plan versus actual, bytes, losses, the config.
  // Valid on rank 0. NaN is null.
  std::string report(const MetricValues& metrics);
  // Writes to options.trace, which must not be empty. Returns rank 0's file error; "": none.
  std::string write_trace();

  const ShardingPlan& plan() { return trainer_->parallel().plan(); }
  const Dataset& data() const { return data_; }
  ModelTrainer& trainer() { return *trainer_; }
  std::vector<LayerChoice> layers();  // of the dense part

 private:
  friend class TrainReport;
  static constexpr int64_t kNoEnd = int64_t{1} << 60;  // number of steps of a job on endless rows

  void build_model();
  void load();
  void load_from(const std::string& directory, bool new_data);
  std::string progress();
  void start();
  void after_step(const StepEnd& end, const TrainWatch& watch);
  void keep_for_validation();
  void take_best();  // for the test; once
  bool validation_due(const StepEnd& end) const;
  void validate(int64_t step, const TrainWatch& watch);
  MetricValues evaluate_on(const Samples& samples);
  void set_learning_rates(int64_t step);
  // Time per stage and bytes sent so far, without validations.
  struct Spent {
    Stages stages;
    ExchangeBytes<int64_t> sent;
  };
  Spent spent();
  BatchReader training_batches() const;
  ReadBatch batches(const TrainWatch& watch);
  bool takes_ahead() const;

  const Runtime& runtime_;
  Config config_;
  TrainJobOptions options_;
  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<BestFolder> best_folder_;  // null: options.save_best, or the best model is not kept
  std::unique_ptr<SaveDirectories> directories_;
  HeadMetrics metrics_;  // metrics.names, without samples
  std::string monitor_;
  Dataset data_;
  std::unique_ptr<data::ArrivingRows> rows_;   // used instead of samples in data_, until arriving_ takes over
  std::unique_ptr<ArrivingBatches> arriving_;  // follows rows_
  std::string arrived_;                        // position to continue from
  std::vector<TableConfig> tables_;
  PlannerOptions planner_;
  DenseWork dense_;
  Samples validation_;  // empty: none
  LearningRateSchedule table_rates_, dense_rates_;
  // ShardedEmbeddings::learning_rates() of the trainer's tables, from the config.
  std::vector<std::vector<double>> base_rates_;
  std::unique_ptr<ModelTrainer> trainer_;
  std::unique_ptr<BestModel> best_;
  std::unique_ptr<JobCheckpoints> checkpoints_;
  std::unique_ptr<JobPublisher> publisher_;
  std::string loaded_;
  std::vector<std::string> passed_over_;
  std::string fingerprint_;  // of the data
  std::vector<std::string> start_notes_, warnings_;
  int64_t first_step_ = 0, steps_ = 0, per_epoch_ = 0;
  std::optional<int64_t> tested_step_;          // unset: the test has not begun
  std::unique_ptr<Trace> trace_, input_trace_;  // of the steps, and of the thread that takes batches
  std::unique_ptr<TrainLoop> loop_;
  bool ahead_ = false;
  std::unique_ptr<ValidationScores> scores_;
  std::unique_ptr<TrainingMetrics> training_metrics_;     // null: none
  std::vector<std::pair<std::string, double>> training_;  // their final values
  std::vector<TrainValidation> validations_;
  std::atomic<bool> ended_early_ = false;    // also read by the pipeline's thread
  std::unique_ptr<MetricsLog> metrics_log_;  // only on rank 0, if it is wanted
  // Counters of training: ids read by this rank, by column; time of the first few steps, of all steps, and of
  // validations.
  std::vector<double> ids_;
  Spent warm_, trained_, validated_;
  double first_step_seconds_ = 0;  // from the start of this process to the end of its first step
  double evaluate_seconds_ = 0;
  std::optional<UnknownIdCounter> vocabularies_;  // for the data's vocabularies, without counts
  std::vector<UnknownIds> unknown_ids_;
};

}  // namespace tessera
