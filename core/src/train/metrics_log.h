// A file with a line of JSON for each report of progress and each validation of a run, for plots and other programs.
#pragma once

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "distributed/stopwatch.h"
#include "tessera/train_job.h"

namespace tessera {

// {"samples", "auc", "logloss", "normalized_entropy", "calibration"}.
nlohmann::ordered_json metrics_json(const BinaryMetrics& metrics);

// Lines: {"step", "epoch", "samples", "loss", "table_rate", "dense_rate", "seconds"} and
// {"step", "validation": {"samples", "auc", ...}, "best", "seconds"}; rates are the schedules' factors, seconds those
// since the log was opened. NaN is null.
class MetricsLog {
 public:
  // `append`: behind the lines of the run that this one continues. kUnavailable where the file cannot be written.
  MetricsLog(const std::string& path, bool append);

  void add(const TrainProgress& progress, double table_rate, double dense_rate);
  void add(const TrainValidation& validation);

 private:
  void write(const std::string& line);

  std::ofstream out_;
  const Stopwatch watch_;
};

}  // namespace tessera
