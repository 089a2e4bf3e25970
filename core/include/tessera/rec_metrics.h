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

namespace tessera {

class RecMetric {
 public:
  // "ne", "logloss", "calibration", "ctr", "mse" (and rmse), "mae", "weighted_avg", "accuracy" or "auc", the last of
  // the window alone; kInvalidArgument for others, and for a window below 1. `window_size`, in samples of this rank:
  // the newest whole batches that together have no more, but always the newest; of auc exactly so many samples.
  RecMetric(const std::string& name, int64_t window_size);

  // Predictions are probabilities (mse, mae: any number), labels 0, 1 or between, weights not negative and, where
  // empty, 1. Equally many; kInvalidArgument otherwise.
  void update(std::span<const double> predictions, std::span<const double> labels, std::span<const double> weights);

  // Each value as "lifetime_<name>" and "window_<name>".
  std::vector<std::pair<std::string, double>> compute() const;

  // What the values are made of: of several ranks, add them up element by element. Empty for auc.
  const std::vector<double>& lifetime_sums() const { return lifetime_; }
  std::vector<double> window_sums() const;
  std::vector<std::pair<std::string, double>> values_of(std::span<const double> sums) const;

 private:
  struct Formula;
  struct Sample {
    double prediction, label, weight;
  };
  struct Batch {
    int64_t samples;
    std::vector<double> sums;
  };
  static const Formula& formula_of(const std::string& name);
  double auc() const;

  const Formula* formula_;
  int64_t window_size_;
  std::vector<double> lifetime_;
  std::deque<Batch> window_;
  std::deque<Sample> newest_;  // auc's
};

}  // namespace tessera
