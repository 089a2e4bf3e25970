// tessera/train_job.h - the job of one config file on one rank: data, plan, model, training, checkpoints, evaluation,
// report. `tessera train` adds options and printing.
//
//   const Config config = load_config("job.toml", {});
//   TrainJob job(runtime, config, {.save = "checkpoints"}, group);
//   const TrainResult trained = job.train({});
//   const TestResult test = job.evaluate();
//   std::cout << to_json(job.report(test));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/online.h"
#include "tessera/process_group.h"
#include "tessera/run_report.h"
#include "tessera/trainer.h"

namespace tessera {

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

// The state in which a job begins.
struct TrainStart {
  int64_t first_step = 0;  // steps done before this run
  // Steps to do in all, including those before this run; unset: rows arrive without end.
  std::optional<int64_t> steps;
  std::string loaded;                    // the checkpoint that the job continues from; empty: it starts new
  std::vector<std::string> passed_over;  // checkpoints that options.resume has skipped, with the reasons
  // The result of options.start: a summary, then a line for each thing that was not taken. Empty: it is unset.
  std::vector<std::string> notes;
  std::vector<std::string> warnings;  // for the user, one sentence each
  std::string monitor;                // the metric that validation.monitor names; empty: no validation
  // The directory of the model that validated best: options.save_best, or the one that validation.restore_best chose.
  // Empty: it is not kept.
  std::string save_best;
};

// The result of training.
struct TrainResult {
  int64_t steps_done = 0;    // in this run
  bool stopped = false;      // TrainWatch::stop ended training before its last step
  bool ended_early = false;  // so did validation.patience validations that were no better
  int64_t model_step = 0;    // steps done by the model that the trainer has; with restore_best, the best one's
  std::vector<TrainValidation> validations;
  // The best model's checkpoint if it could not be written. options.save_best then has an older one, or none.
  std::optional<TrainSave> unsaved_best;
};

// Used by one thread. Everything that is not const is collective.
class TrainJob {
 public:
  // Reads the data, plans and builds the model, and loads a checkpoint if one is given. Errors name the problem in
  // config, data or checkpoint. kFailedPrecondition: the ranks have different jobs.
  TrainJob(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
           std::shared_ptr<ProcessGroup> group);
  ~TrainJob();

  const TrainStart& start() const;
  // Call it once. Problems with the checkpoint directory are reported before the first step. A NaN loss ends the job
  // before it is saved. Between steps, checkpoints are written in the background if there is memory for a copy of the
  // rows; otherwise training waits. A disk error is reported, and the job continues. It saves at the end, whatever the
  // reason.
  const TrainResult& train(const TrainWatch& watch);
  // Tests the trained model on the test rows. With options.save_best or validation.restore_best it is the model that
  // validated best, which the trainer then has; otherwise the final model.
  TestResult evaluate();
  // The test of a stopped job: metrics.names without values.
  TestResult untested() const;
  // `test`: the result of evaluate(), or untested(); unset: the report has no metrics of a test. Valid on rank 0.
  RunReport report(const std::optional<TestResult>& test);
  // Writes to options.trace, which must not be empty. Returns rank 0's file error; "": none.
  std::string write_trace();

  const ShardingPlan& plan();
  const Dataset& data() const;
  ModelTrainer& trainer();
  std::vector<LayerChoice> layers();  // of the dense part

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
