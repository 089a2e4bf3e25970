// Each report of progress and each validation of a run, for plots and other programs: as lines of JSON and as events.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "distributed/stopwatch.h"
#include "tessera/train_job.h"
#include "train/event_file.h"

namespace tessera {

// {"samples", and each value by its name}.
nlohmann::ordered_json metrics_json(const MetricValues& metrics);

// Lines: {"step", "epoch", "samples", "loss", "table_rate", "dense_rate", "seconds"}, with
// "training" {"lifetime_auc?bins=1000", ...} where there is some, and {"step", "validation": {"samples", "auc", ...},
// "best", "seconds"}; rates are the schedules' factors, seconds those since the log was opened. NaN is null.
class MetricsLog {
 public:
  // To report.metrics and report.tensorboard, where they are not empty. `append`: behind the lines of the run that this
  // one continues. kUnavailable where a file cannot be written.
  MetricsLog(const ReportConfig& report, bool append);

  void add(const TrainProgress& progress);
  void add(const TrainValidation& validation);

 private:
  void write(const nlohmann::ordered_json& line);

  std::ofstream lines_;
  std::unique_ptr<EventFile> events_;
  const Stopwatch watch_;
};

}  // namespace tessera
