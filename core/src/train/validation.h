// What validations have said: which model was best so far, and whether training goes on getting better.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "tessera/config.h"
#include "tessera/metrics.h"

namespace tessera {

struct Validation {
  int64_t step = 0;
  BinaryMetrics metrics;
};

class ValidationScores {
 public:
  explicit ValidationScores(const ValidationConfig& config) : config_(config) {}

  // True: the best one so far, by at least min_delta.
  bool add(const Validation& validation) {
    const double cost = metric_cost(validation.metrics, config_.monitor);
    const bool better = cost < least_ - (best_ ? config_.min_delta : 0);
    if (better) {
      least_ = cost;
      best_ = validation;
    }
    since_best_ = better ? 0 : since_best_ + 1;
    return better;
  }
  // So many were no better that training should end.
  bool exhausted() const { return config_.patience > 0 && since_best_ >= config_.patience; }
  const std::optional<Validation>& best() const { return best_; }

 private:
  ValidationConfig config_;
  std::optional<Validation> best_;
  double least_ = std::numeric_limits<double>::infinity();
  int64_t since_best_ = 0;
};

}  // namespace tessera
