#include "train/metrics_log.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/error.h"

namespace tessera {

using json = nlohmann::ordered_json;

namespace {

// Removes the piece of a line that a killed process or a full disk left at the end, so that all lines stay JSON.
void remove_piece(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t whole = 0, bytes = 0;
  for (std::string line; std::getline(file, line);) {
    bytes += line.size() + (file.eof() ? 0 : 1);
    if (!file.eof()) whole = bytes;
  }
  std::error_code ignored;
  if (whole < bytes) std::filesystem::resize_file(path, whole, ignored);
}

}  // namespace

json metrics_json(const MetricValues& m) {
  json out = {{"samples", m.samples}};
  for (const auto& [name, value] : m.values) out[name] = value;
  return out;
}

MetricsLog::MetricsLog(const ReportConfig& report, bool append) : path_(report.metrics) {
  if (!report.metrics.empty()) {
    if (append) remove_piece(path_);
    lines_.open(path_, append ? std::ios::app : std::ios::trunc);
    if (!lines_) fail(Code::kUnavailable, "cannot write report.metrics to ", report.metrics);
  }
  if (!report.tensorboard.empty()) events_ = std::make_unique<EventFile>(report.tensorboard);
}

void MetricsLog::add(const TrainProgress& progress) {
  json line = {{"step", progress.step},      {"epoch", progress.epoch},           {"samples", progress.samples},
               {"loss", progress.loss},      {"table_rate", progress.table_rate}, {"dense_rate", progress.dense_rate},
               {"seconds", watch_.seconds()}};
  for (const auto& [name, value] : progress.training) line["training"][name] = value;
  write(line);
  if (!events_) return;
  events_->add("train/loss", progress.step, progress.loss);
  for (const auto& [name, value] : progress.training) events_->add("training/" + name, progress.step, value);
  events_->add("schedule/tables", progress.step, progress.table_rate);
  events_->add("schedule/dense", progress.step, progress.dense_rate);
  flush_events();
}

void MetricsLog::add(const TrainValidation& validation) {
  write({{"step", validation.step},
         {"validation", metrics_json(validation.metrics)},
         {"best", validation.best},
         {"seconds", watch_.seconds()}});
  if (!events_) return;
  for (const auto& [name, value] : validation.metrics.values)
    events_->add(str_cat("validation/", name), validation.step, value);
  flush_events();
}

void MetricsLog::flush_events() {
  if (!events_->flush()) ++lost_;
}

// Flush each line, because people watch a run. A full disk does not end the run; it only loses the lines of that time.
void MetricsLog::write(const json& line) {
  if (!lines_.is_open()) return;
  lines_ << line.dump() << std::endl;
  if (lines_) return;
  ++lost_;
  remove_piece(path_);
  lines_.clear();
  lines_.seekp(0, std::ios::end);
}

}  // namespace tessera
