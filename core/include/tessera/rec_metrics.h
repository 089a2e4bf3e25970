// tessera/rec_metrics.h - metrics over all batches so far (lifetime) and over the newest (window), as TorchRec's
// RecMetrics have them: sums in double, a weight for each sample.
//
//   RecMetric ne("ne", 100'000);
//   ne.update(predictions, labels, weights);        // of each batch
//   for (const auto& [name, value] : ne.compute()) ...   // "lifetime_ne", "window_ne"
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/metrics.h"

namespace tessera {

class RecMetric {
 public:
  // A metric of make_metric(), computed as TorchRec does: 0 where a ratio is not defined (AUC 0.5), equal scores in AUC
  // as they came, logloss in bits. kInvalidArgument, kNotFound: see there; a metric over groups; a window below 1.
  // `window_size`, in samples of this rank: the newest whole batches that together have no more, but always the newest;
  // of metrics of all samples (auc) exactly so many samples.
  RecMetric(const std::string& name, int64_t window_size);
  // The same, called `name`, of a metric that is there.
  RecMetric(const std::string& name, MetricPtr metric, int64_t window_size);

  // Predictions are probabilities (of metrics of any numbers: any), weights not negative and, where empty, 1. Equally
  // many; kInvalidArgument otherwise.
  void update(std::span<const double> predictions, std::span<const double> labels, std::span<const double> weights);

  // Each value as "lifetime_<name>" and "window_<name>"; of metrics of all samples the window's alone.
  std::vector<std::pair<std::string, double>> compute() const;

  // The sums that values are made of: add those of several ranks up, element by element. Empty for metrics of all
  // samples.
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
  int64_t window_size_;
  std::vector<double> lifetime_;
  std::deque<Batch> window_;
  std::deque<Sample> newest_;  // of metrics of all samples
};

}  // namespace tessera
