// tessera/run_report.h - the figures of a job's run as plain structs. One RunReport is printed as JSON (report.json),
// as a page (--html) and on the terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/dense.h"
#include "tessera/metrics.h"
#include "tessera/sharding.h"

namespace tessera {

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

}  // namespace tessera
