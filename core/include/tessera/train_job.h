// tessera/train_job.h - the job of one config file, on one rank: data, plan, model, training, checkpoints, evaluation,
// report. `tessera train` is this, with options and printing.
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
  std::string save;                  // directory for checkpoints, one at the end; empty: none
  std::string load;                  // checkpoint directory to continue from; empty: none
  std::string start;                 // checkpoint to begin a new run with, as far as it fits; empty: none
  int64_t save_every = 0;            // steps between checkpoints; 0: not by steps
  double save_every_minutes = 0;     // and minutes; 0: not by time. Neither: one at the end only
  int64_t save_full_every = 1;       // of so many checkpoints one has all rows, the others those changed since it
  int keep = 2;                      // checkpoints that stay in `save`
  bool resume = false;               // go on with the newest whole checkpoint in `save`; none: as without
  bool overwrite = false;            // the first checkpoint takes the place of another run's in `save` or `save_best`
  std::string save_best;             // directory for the checkpoint that validated best; empty: none
  bool new_data = false;             // with `load`: from the first batch of this job's data
  std::optional<int64_t> max_steps;  // stop after so many steps in all; unset: after the last epoch
  DeviceStreamPtr device;            // where the tables are; null: host memory
  std::string trace;                 // file for a picture of the steps; empty: none
};

// How far training is.
struct TrainProgress {
  int64_t step = 0, epoch = 0;            // steps done in all, and the epoch of the last one
  int64_t samples = 0;                    // of all ranks, in this run
  double loss = 0;                        // the mean of the steps since the progress before
  double table_rate = 1, dense_rate = 1;  // factors of the schedules in the last step
  // Values of metrics.training: "lifetime_NAME" and "window_NAME" of each.
  std::vector<std::pair<std::string, double>> training;
};

// A checkpoint that was to be written.
struct TrainSave {
  int64_t step = 0;    // steps done in all
  double pause_s = 0;  // that training stood still for it
  std::string error;   // why it is not there, in one sentence; empty: it is
  bool best = false;   // it is the one of options.save_best
};

// A publication that was due.
struct TrainPublish {
  int64_t step = 0;  // steps done in all
  Published what;
  double pause_s = 0;  // that training stood still for it
  std::string error;   // why it is not there, in one sentence; empty: it is
};

// How good the model was on the rows kept for validation.
struct TrainValidation {
  int64_t step = 0;  // steps done in all
  MetricValues metrics;
  bool best = false;                         // so far, by validation.monitor
  double seconds = 0;                        // that it took
  std::vector<UnknownIds> unknown_ids = {};  // of columns with a vocabulary
};

// Calls into the program while its job trains. All may be left out.
struct TrainWatch {
  std::function<bool()> stop = nullptr;  // TrainLoopOptions::stop
  // True if report() is wanted after a step; the same on all ranks, as losses are added up over them then.
  std::function<bool(int64_t step)> due = nullptr;
  std::function<void(const TrainProgress& progress)> report = nullptr;
  std::function<void(const TrainValidation& validation)> validated = nullptr;
  // Called for each checkpoint in options.save and options.save_best, once it is there or could not be written, on
  // every rank.
  std::function<void(const TrainSave& save)> saved = nullptr;
  std::function<void(const TrainPublish& publish)> published = nullptr;  // of each in config.publish.directory
};

// How a job's ranks meet, by its [comm] section; `device`: of this rank.
ProcessGroupOptions group_options(const CommConfig& comm, const Device& device);

// Used by one thread; what is not const is collective.
class TrainJob {
 public:
  // Reads the data, plans and builds the model, and loads a checkpoint where one is given. Errors name what in the
  // config, the data or the checkpoint cannot be; kFailedPrecondition: the ranks have different jobs.
  TrainJob(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
           std::shared_ptr<ProcessGroup> group);
  ~TrainJob();

  // The result of options.start: a first line, then each thing that was not taken, one line each. Empty without.
  const std::vector<std::string>& start_notes() const { return start_notes_; }
  int64_t first_step() const { return first_step_; }  // steps done before this run
  // Steps to be done in all, those before this run included; 0 if there is no end.
  int64_t steps() const { return has_end() ? steps_ : 0; }
  bool has_end() const { return steps_ != kNoEnd; }  // false: rows arrive as long as they do
  // The checkpoint that it goes on from; empty: it begins anew.
  const std::string& loaded() const { return loaded_; }
  // Checkpoints that options.resume has passed over, and why.
  const std::vector<std::string>& passed_over() const { return passed_over_; }
  // Warnings for the person who started it, one sentence each.
  std::vector<std::string> warnings() const;
  // Once. What the directory for checkpoints cannot take is said before the first step; a loss that is no number ends
  // the job before it is saved. Between steps, checkpoints are written beside training where there is memory for a copy
  // of the rows, and else while it waits; one that the disk does not take is told, and the job goes on. Saves at the
  // end, whatever the end was.
  void train(const TrainWatch& watch);
  // TrainWatch::stop ended it before its last step.
  bool stopped() const;
  // It got no better for validation.patience validations, and ended before its last step.
  bool ended_early() const { return ended_early_; }
  const std::vector<TrainValidation>& validations() const { return validations_; }
  int64_t steps_done() const { return loop_ ? loop_->steps_done() : 0; }  // in this run

  // The metrics of the test part, by metrics.names. With options.save_best they are those of the model that validated
  // best, which is the trainer's from then on; else those of the model that training ended with.
  MetricValues evaluate();
  int64_t tested_step() const { return tested_step_; }  // of evaluate(): the model's steps in all
  // The model that validated best, if the disk did not take it: options.save_best has an older one, or none.
  const std::optional<TrainSave>& unsaved_best() const { return unsaved_best_; }
  // Unknown ids of the rows that were evaluated last, on all ranks, by columns with a vocabulary.
  const std::vector<UnknownIds>& unknown_ids() const { return unknown_ids_; }
  // The one of them that validation.monitor means; empty without a validation.
  const std::string& monitor() const { return monitor_; }
  // Without a value, as for report() of a job that was stopped.
  MetricValues no_metrics() const { return metrics_.values(); }
  // Everything about the run as JSON, for people and programs: stages, plan versus actual, bytes, losses, the config.
  // Valid on rank 0. NaN is null.
  std::string report(const MetricValues& metrics);
  // Writes to options.trace, which is not empty. Returns the error of the file on rank 0, "" if there was none.
  std::string write_trace();

  const ShardingPlan& plan() { return trainer_->parallel().plan(); }
  const Dataset& data() const { return data_; }
  ModelTrainer& trainer() { return *trainer_; }
  std::vector<LayerChoice> layers();  // of the dense part

 private:
  friend class TrainReport;
  static constexpr int64_t kNoEnd = int64_t{1} << 60;  // steps of a job on rows that arrive

  void build_model();
  void load();
  void load_from(const std::string& directory, bool new_data);
  std::string progress();
  void start();
  void after_step(const StepEnd& end, const TrainWatch& watch);
  void keep_for_validation();
  void save_best(int64_t step, const TrainWatch& watch);
  void take_best();
  bool validation_due(const StepEnd& end) const;
  void validate(int64_t step, const TrainWatch& watch);
  MetricValues evaluate_on(const Samples& samples);
  void set_learning_rates(int64_t step);
  // Time per stage and bytes that were sent, so far; of validations: not.
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
  std::unique_ptr<SaveDirectories> directories_;
  HeadMetrics metrics_;  // of metrics.names, without samples
  std::string monitor_;
  Dataset data_;
  std::unique_ptr<data::ArrivingRows> rows_;   // instead of samples in data_; until they are followed
  std::unique_ptr<ArrivingBatches> arriving_;  // and then this
  std::string arrived_;                        // position to go on behind
  std::vector<TableConfig> tables_;
  PlannerOptions planner_;
  DenseWork dense_;
  Samples validation_;  // none: empty
  LearningRateSchedule table_rates_, dense_rates_;
  // ShardedEmbeddings::learning_rates() of the trainer's tables, as the config has them.
  std::vector<std::vector<double>> base_rates_;
  std::unique_ptr<ModelTrainer> trainer_;
  std::unique_ptr<JobCheckpoints> checkpoints_;
  std::unique_ptr<JobPublisher> publisher_;
  std::string loaded_;
  std::vector<std::string> passed_over_;
  std::string fingerprint_;  // of the data
  std::vector<std::string> start_notes_, warnings_;
  int64_t first_step_ = 0, steps_ = 0, per_epoch_ = 0, tested_step_ = 0;
  std::unique_ptr<Trace> trace_, input_trace_;  // of the steps, and of the thread that takes batches in
  std::unique_ptr<TrainLoop> loop_;
  bool ahead_ = false;
  std::unique_ptr<ValidationScores> scores_;
  std::unique_ptr<TrainingMetrics> training_metrics_;     // null: none
  std::vector<std::pair<std::string, double>> training_;  // their values in the end
  std::vector<TrainValidation> validations_;
  std::optional<TrainSave> unsaved_best_;
  std::atomic<bool> ended_early_ = false;    // the pipeline asks, too
  std::unique_ptr<MetricsLog> metrics_log_;  // of rank 0, where there is one
  // Counts of training: ids read by this rank, by column; seconds of the first few steps, in all, and beside them.
  std::vector<double> ids_;
  Spent warm_, trained_, validated_;
  double first_step_seconds_ = 0;  // from the start of this process to the end of its first step
  double evaluate_seconds_ = 0;
  std::optional<UnknownIdCounter> vocabularies_;  // of the data, without ids
  std::vector<UnknownIds> unknown_ids_;
};

}  // namespace tessera
