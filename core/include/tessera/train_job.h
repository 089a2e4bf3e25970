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
#include "tessera/dense.h"
#include "tessera/device.h"
#include "tessera/metrics.h"
#include "tessera/online.h"
#include "tessera/process_group.h"
#include "tessera/sharding.h"
#include "tessera/step_figures.h"
#include "tessera/trainer.h"

namespace tessera {

// The figures of a job's run as plain structs. One RunReport is printed as JSON (report.json), as a page (--html) and
// on the terminal.

// The result of one validation.
struct TrainValidation {
  int64_t step = 0;  // steps done in all
  MetricValues metrics;
  bool best = false;                         // so far, by validation.monitor
  double seconds = 0;                        // its duration
  std::vector<UnknownIds> unknown_ids = {};  // for columns with a vocabulary
};

// The result of the test.
struct TestResult {
  MetricValues metrics;  // by metrics.names; without samples if there are no test rows
  double seconds = 0;
  int64_t step = 0;                          // steps done by the model that was tested
  std::vector<UnknownIds> unknown_ids = {};  // for columns with a vocabulary, over all ranks
};

// A figure of the plan beside the measured one. NaN: it was not measured.
struct PlannedFigure {
  double predicted = 0, measured = 0;
};

// Time of a stage in a step, in microseconds: on this rank, and on the slowest one.
struct StageTime {
  std::string name;
  double us = 0, largest_us = 0;
};

// The planner's estimate of a step beside the run's measurements. Times are microseconds per step.
struct PlanVersusActual {
  struct Rank {
    PlannedFigure us;  // all stages
    std::vector<std::pair<std::string, PlannedFigure>> stages_us;
    PlannedFigure in_host, across_hosts;  // bytes sent
  };
  struct Table {
    std::string table;
    int rank = 0;
    std::string sharding_type;
    PlannedFigure lookup_us, update_us;
    double exchanged_bytes = 0;
    std::optional<PlannedFigure> disk_reads;  // rows; unset: nothing is on a disk
  };
  std::string figures;  // origin of the cost model's figures
  PlannedFigure step_us;
  std::vector<Rank> ranks;
  int64_t sampled_steps = 0;  // steps in which tables were timed one by one
  std::vector<Table> tables;  // for each rank with rows of the table
};

// Bytes per step of one exchange, summed over ranks; `measured` was sent.
struct ExchangeFigures {
  std::string exchange;  // "ids", "rows", "gradients", "unused_inline"
  PlannedFigure in_host, across_hosts;
};

// Counts of a table's kernels, summed over ranks.
struct TableCounts {
  std::string name;
  int64_t rows_in_use = 0, lookups = 0, hits = 0, evictions = 0, bytes = 0;
  struct Disk {
    int64_t storage_reads = 0, storage_writes = 0, read_us = 0, wait_us = 0;
  };
  std::optional<Disk> disk;  // only for tables with rows on a disk
};

// The work on inputs, in microseconds per step: in all, as far as steps waited for it, and the rest.
struct PipelineTimes {
  double work_us = 0, waited_us = 0, hidden_us = 0;
};

// Event times of rows that arrived, in seconds since 1970. A delay is the time from the event to its step. A row is
// late if a row with a later time came before it; lateness is the distance to the latest one. Quantiles are at most 9 %
// above the exact ones.
struct EventTimeFigures {
  int64_t rows = 0;
  double first = 0, newest = 0;
  struct Delay {
    double mean = 0, p50 = 0, p99 = 0, max = 0;
  } delay_s;
  int64_t late_rows = 0;
  double max_lateness_s = 0;
};

struct ArrivedRows {
  int64_t rows = 0;
  double waited_s = 0;
  std::string position;                         // JSON of the reader; empty: it has none
  std::optional<EventTimeFigures> event_times;  // unset: no row had a time
};

// Ids per step, summed over ranks, if repeated rows of some tables travel once (use_index_dedup).
struct IdFigures {
  double wanted = 0;   // ids of rows that other ranks own
  PlannedFigure sent;  // those of them that travelled, each for a row
};

struct CheckpointCounts {
  int64_t saved = 0, saved_changes = 0, failed = 0;  // saved_changes: those of `saved` with only changed rows
  bool beside_training = false;                      // training went on while a checkpoint was written
  int64_t copy_bytes = 0;
  double longest_pause_s = 0;  // of training
};

struct PublicationCounts {
  int64_t published = 0, bases = 0, failed = 0;
  int64_t changed_rows = 0, delta_bytes = 0;              // in all deltas
  double longest_pause_s = 0, longest_delta_pause_s = 0;  // of training; the latter without the first base
};

// A job's run. Unset optionals, empty texts and empty lists are left out of the JSON.
struct RunReport {
  std::string model;      // model.type
  std::string data_name;  // of the data set
  int64_t train_rows = 0, test_rows = 0;
  std::string test_split;  // the rows of the test: "10 % of the rows, random"
  int world_size = 1;
  std::string backend;                       // the transport
  std::string dense_precision, why_float32;  // the type of dense products, and why "auto" did not take bfloat16
  std::string device, dense_device;          // of the tables and of the dense part: "cpu", "cuda:0"
  std::string why_in_host_memory;            // ModelTrainer::why_in_host_memory()
  std::vector<LayerChoice> layers;
  int64_t steps = 0, first_step = 0;  // done in this run, and before it
  std::vector<std::string> start;     // TrainStart::notes
  int64_t samples = 0;                // of all ranks
  double seconds = 0;                 // of training, without validations
  double samples_per_s = 0;
  double loss = 0;                                               // mean over the steps; NaN: there was none
  std::vector<std::pair<std::string, double>> training_metrics;  // "lifetime_NAME", "window_NAME"
  std::optional<ArrivedRows> arrived;                            // only for rows that arrive
  TestResult test;                                               // without samples if the job was stopped
  std::vector<TrainValidation> validations;
  std::vector<StageTime> stages;
  double seconds_to_first_step = 0;       // from the start of the process to the end of its first step
  std::optional<PipelineTimes> pipeline;  // unset: batches were not prepared ahead
  std::vector<ExchangeFigures> traffic;   // empty: there was one rank
  std::optional<IdFigures> ids;           // unset: all of them travelled
  std::optional<CheckpointCounts> checkpoints;
  std::optional<PublicationCounts> publications;
  PlanVersusActual plan_versus_actual;
  std::vector<TableCounts> tables;
  int64_t dropped_ids = 0;  // ids out of range, over all ranks
  ShardingPlan plan;
  std::vector<double> losses;  // of the steps
  std::string config;          // the effective one, as TOML
};

// The report as JSON, for programs. NaN is null. `indent`: number of spaces; -1: everything in one line.
std::string to_json(const RunReport& report, int indent = -1);

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
  int64_t lost_log_lines = 0;  // of report.metrics and report.tensorboard, because writing failed
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

// The job of a config without its training: what `tessera plan`, `tessera stats` and others use of it.

inline constexpr const char* kGraphType = "graph";  // model.type of models built from [[layer]] sections

struct JobData {
  Dataset data;
  std::vector<TableConfig> tables;  // from the config, or one for each column of the data; never empty
};

// `encoding` is that of the model to continue (Dataset::encoding); empty: it is made from the data. kInvalidArgument:
// there is no table, or tables have different bounds_check policies. With "fatal" also: an id has no row, or a table
// has fewer rows than its column's vocabulary, hash or buckets have ids.
JobData read_job_data(const Runtime& runtime, const Config& config, const std::string& encoding = "");

// Returns the policy that all tables share. kInvalidArgument: there is none, or several.
BoundsCheckMode bounds_check_of(const std::vector<TableConfig>& tables);

// Checks the components that a job names but only its steps would look up: its transport, its tables' optimizers with
// their options, and their sharders. The transport must be known or "auto"; it need not run on this machine. For the
// CPU, whose kernels are always installed, it also checks compute kernels. kNotFound, kInvalidArgument.
void check_components(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                      const std::string& compute_device);

// kInvalidArgument: tables or inputs do not fit the model.
ModelGraph model_of(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                    int64_t dense_inputs);
// Only the config's [[layer]]s and [[head]]s, for tables of a checkpoint that does not describe its own.
ModelGraph layers_of(const Runtime& runtime, const Config& config, const std::vector<EmbeddingBagConfig>& tables,
                     int64_t dense_inputs);
// The dense work of model_of(). Makes its layers unless it is a preset.
DenseWork dense_work(const Runtime& runtime, const Config& config, const std::vector<TableConfig>& tables,
                     int64_t dense_inputs);
// Tells the planner what the data show, as far as the config does not: ids per bag and the skew of row popularity, from
// some batches of the training part, and the ids that a training step draws. The result is the same on every rank.
void observe_job(const Config& config, const JobData& job, PlannerOptions* options);

// A sentence if a job's test part is another one than that of the training run, so that the model may have been trained
// on its rows; else empty. `trained_on`: ModelDescription::trained_on.
std::string other_test_part(const std::string& trained_on, const Config& config, const Dataset& data);

// Steps done, from the result of load_checkpoint(); unset: `tessera train` did not write it.
std::optional<int64_t> saved_step(const std::string& progress);
// Dataset::encoding of the newest checkpoint in `directory`; empty: it has none, or there is no checkpoint.
std::string saved_encoding(const std::string& directory);

}  // namespace tessera
