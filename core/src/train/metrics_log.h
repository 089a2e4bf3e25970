// Logs each progress report and each validation of a run, as lines of JSON and as TensorBoard events.
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

// A line is {"step", "epoch", "samples", "loss", "table_rate", "dense_rate", "seconds"}, with "training"
// {"lifetime_auc?bins=1000", ...} if there are such metrics, or {"step", "validation": {"samples", "auc", ...}, "best",
// "seconds"}. Rates are factors of the schedules. Seconds count from the opening of the log. NaN is null.
class MetricsLog {
 public:
  // Writes to report.metrics and report.tensorboard, unless they are empty. `append`: continue the lines of the run
  // that this one continues. kUnavailable: a file cannot be written.
  MetricsLog(const ReportConfig& report, bool append);

  void add(const TrainProgress& progress);
  void add(const TrainValidation& validation);
  int64_t lost() const { return lost_; }  // lines, and events of TensorBoard, that could not be written

 private:
  void write(const nlohmann::ordered_json& line);
  void flush_events();

  std::ofstream lines_;
  std::string path_;  // of lines_
  int64_t lost_ = 0;
  std::unique_ptr<EventFile> events_;
  const Stopwatch watch_;
};

}  // namespace tessera
