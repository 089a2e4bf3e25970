// Metrics over all batches so far (lifetime) and over the newest ones (window), like TorchRec's
// RecMetrics: sums in double, and a weight for each sample.
//
//   RecMetric ne("ne", 100'000);
//   ne.update(predictions, labels, weights);        // of each batch
//   for (const auto& [name, value] : ne.compute()) ...   // "lifetime_ne", "window_ne"
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/metrics.h"

namespace tessera {

class RecMetric {
 public:
  // Makes a metric of make_metric() that follows TorchRec: 0 for undefined ratios (AUC 0.5), equal scores in AUC in
  // order of arrival, logloss in bits. `window_size` counts samples of this rank. The window has the newest whole
  // batches within that size, but always the newest one. For per-sample metrics such as AUC, the window holds exactly
  // `window_size` samples. kInvalidArgument: a metric over groups, a window below 1, or an error of make_metric().
  // kNotFound: no such metric.
  RecMetric(const std::string& name, int64_t window_size);
  // Does the same for an existing metric, under the name `name`. `classes`: those of MetricSamples.
  RecMetric(const std::string& name, MetricPtr metric, int64_t window_size, int64_t classes = 0);

  // Predictions are probabilities (or any numbers, if the metric takes any), or logits [samples, classes]. Weights are
  // not negative; empty: all 1. kInvalidArgument: something else, or lengths differ.
  void update(std::span<const double> predictions, std::span<const double> labels, std::span<const double> weights);

  // Returns each value as "lifetime_<name>" and "window_<name>". Per-sample metrics have only the window.
  std::vector<std::pair<std::string, double>> compute() const;

  // The sums that values are computed from. Add those of several ranks element by element. Empty for per-sample
  // metrics.
  const std::vector<double>& lifetime_sums() const { return lifetime_; }
  std::vector<double> window_sums() const;
  const std::string& name() const { return name_; }
  double value_of(std::span<const double> sums) const { return metric_->value(sums); }

 private:
  struct Batch {
    int64_t samples;
    std::vector<double> sums;
  };
  struct Sample {
    double prediction, label, weight;
  };
  double value_of_newest() const;

  std::string name_;
  MetricPtr metric_;
  int64_t window_size_, classes_;
  std::vector<double> lifetime_;
  std::deque<Batch> window_;
  std::deque<Sample> newest_;  // for per-sample metrics
};

}  // namespace tessera
