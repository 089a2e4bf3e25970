// The results of validations: the best one so far, and whether training still improves.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/config.h"
#include "tessera/metrics.h"
#include "tessera/process_group.h"

namespace tessera {

struct Validation {
  int64_t step = 0;
  MetricValues metrics;
};

class ValidationScores {
 public:
  // `metrics`: the metrics of validations. kInvalidArgument: `monitor` is none of them, or has no best value.
  ValidationScores(const ValidationConfig& config, HeadMetrics metrics)
      : config_(config), metrics_(std::move(metrics)) {
    try {
      config_.monitor = metrics_.shown(config_.monitor);
      (void)metrics_.cost(config_.monitor, 0);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat("validation.monitor: ", e.what()));
    }
  }

  const std::string& monitor() const { return config_.monitor; }  // its name in the values
  // Returns true if this is the best one so far, by at least min_delta.
  bool add(const Validation& validation) {
    const double cost = metrics_.cost(config_.monitor, validation.metrics[config_.monitor]);
    const bool better = cost < least_ - (std::isfinite(least_) ? config_.min_delta : 0);
    if (better) {
      least_ = cost;
      best_ = validation;
    }
    since_best_ = better ? 0 : since_best_ + 1;
    return better;
  }
  // True if `patience` validations were not better, so training should end.
  bool exhausted() const { return config_.patience > 0 && since_best_ >= config_.patience; }
  const std::optional<Validation>& best() const { return best_; }  // of this run

  // State for a run that continues: the least cost so far (infinite before the first validation), and how many
  // validations ago it was.
  double least() const { return least_; }
  int64_t since_best() const { return since_best_; }
  void go_on(double least, int64_t since_best) {
    least_ = least;
    since_best_ = since_best;
  }

 private:
  ValidationConfig config_;
  HeadMetrics metrics_;
  std::optional<Validation> best_;
  double least_ = std::numeric_limits<double>::infinity();
  int64_t since_best_ = 0;
};

// Gives all ranks the values of rank 0. A plugin's metric may compute others on another rank, and ranks that disagree
// about the best model would not do the same next. Collective.
inline MetricValues of_first_rank(MetricValues metrics, const ProcessGroup& group) {
  if (group.world_size() == 1 || metrics.values.empty()) return metrics;
  std::vector<double> values;
  for (const auto& [name, value] : metrics.values) values.push_back(value);
  const Tensor shared = Tensor::from(values);
  group.broadcast(shared, 0, "metrics").wait();
  for (size_t i = 0; i < values.size(); ++i) metrics.values[i].second = shared.data<double>()[i];
  return metrics;
}

}  // namespace tessera
