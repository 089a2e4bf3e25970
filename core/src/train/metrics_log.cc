#include "train/metrics_log.h"

#include <nlohmann/json.hpp>

namespace tessera {

using json = nlohmann::ordered_json;

json metrics_json(const BinaryMetrics& m) {
  return {{"samples", m.samples},
          {"auc", m.auc},
          {"logloss", m.logloss},
          {"normalized_entropy", m.normalized_entropy},
          {"calibration", m.calibration}};
}

MetricsLog::MetricsLog(const std::string& path, bool append) : out_(path, append ? std::ios::app : std::ios::trunc) {
  if (!out_) fail(Code::kUnavailable, "cannot write report.metrics to ", path);
}

void MetricsLog::add(const TrainProgress& progress, double table_rate, double dense_rate) {
  write(json{{"step", progress.step},
             {"epoch", progress.epoch},
             {"samples", progress.samples},
             {"loss", progress.loss},
             {"table_rate", table_rate},
             {"dense_rate", dense_rate},
             {"seconds", watch_.seconds()}}
            .dump());
}

void MetricsLog::add(const TrainValidation& validation) {
  write(json{{"step", validation.step},
             {"validation", metrics_json(validation.metrics)},
             {"best", validation.best},
             {"seconds", watch_.seconds()}}
            .dump());
}

// A line is there as soon as it was told: people look while the run goes on. A full disk ends no run.
void MetricsLog::write(const std::string& line) { out_ << line << std::endl; }

}  // namespace tessera
