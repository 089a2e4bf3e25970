// tessera/metrics.h - how good predictions are, by names: AUC, logloss, NDCG, a plugin's own, over all ranks.
//
//   MetricSet metrics({"auc", "logloss", "ndcg?k=10&key=user"});
//   metrics.add(logits, batch.labels, &batch.sparse);     // on every rank, of each batch
//   MetricValues values = metrics.values(group);          // the same on all ranks
//   double auc = values["auc"];
//
// A metric is a formula over sums (abi/draft/metric.h): sums of any part of the samples, of each group of samples, or
// of all samples together. So ranks merge exactly, whichever of them had which samples.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/jagged_tensor.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

// Equally many of each. `scores`: what the model gives; `predictions`: of labels, so of logits their probabilities.
struct MetricSamples {
  std::span<const double> scores, predictions, labels, weights;
};

// A formula; keeps no samples. Used by any number of threads.
class Metric {
 public:
  enum class Pieces { kAny, kGroup, kAll };  // which samples come together in one call of add()
  enum class Best { kNone, kLargest, kSmallest, kOne };
  struct Info {
    Pieces pieces = Pieces::kAny;
    Best best = Best::kNone;
    int64_t sums = 1;
    bool any_labels = false;  // takes any numbers; else labels from 0 to 1
  };

  explicit Metric(Info info) : info_(info) {}
  virtual ~Metric() = default;
  const Info& info() const { return info_; }
  // Adds a piece to `sums`, of which there are info().sums. kInvalidArgument: labels that the metric cannot take.
  virtual void add(const MetricSamples& samples, std::span<double> sums) const = 0;
  // NaN where it is not defined.
  virtual double value(std::span<const double> sums) const = 0;
  // Turned so that less is better; infinite where `value` is NaN.
  double cost(double value) const;

 private:
  Info info_;
};
using MetricPtr = std::shared_ptr<const Metric>;

// p: prediction, y: label, w: weight, s: score. Logs are natural ones; a p in a log is kept 2^-24 off 0 and 1. Labels
// from 0 to 1; but of mse, rmse, mae, ctr and weighted_avg any numbers. NaN without samples, and where a sum that is
// divided by is 0.
//
//   auc                 the probability that a positive has the greater score than a negative, exact over all pairs,
//                       ties one half; `bins` > 0: of p in so many equal bins instead, which needs no samples kept
//   gauc                the mean of the groups' AUC, weighted by their samples, without groups of one class
//   logloss             mean of -y ln p - (1 - y) ln(1 - p)
//   normalized_entropy  logloss / the entropy of mean(y): 1 for the best constant guess; also `ne` (He et al.,
//   Practical
//                       Lessons from Predicting Clicks on Ads at Facebook, 2014)
//   calibration         sum w p / sum w y
//   mse, rmse, mae      of p and y
//   accuracy, precision, recall    of p >= `threshold` (0.5) and y >= 0.5
//   ctr, weighted_avg   mean of y, of p
//   ndcg                mean over groups with a positive label of DCG / the best DCG: the sum of y / log2(rank + 1)
//   over
//                       the `k` (10) samples with the greatest scores; of equal scores the mean over their orders
//   recall_at_k         mean over the same groups: the part of sum y that is in these k
//   hit_rate            mean over the same groups: whether a label of 0.5 or more is in these k
//
// Others are parts of the kind tessera.metric. All may have options: "ndcg?k=5". kInvalidArgument: options; kNotFound,
// with the nearest name: no such metric.
MetricPtr make_metric(const std::string& name, const Runtime* runtime = nullptr);
std::vector<std::string> metric_names();  // of those above, ascending

// The values in the order in which they were asked for.
struct MetricValues {
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> values;
  double operator[](const std::string& name) const;  // kInvalidArgument: it was not asked for
};

inline const std::vector<std::string> kUsualMetrics = {"auc", "logloss", "normalized_entropy", "calibration"};

struct MetricSetOptions {
  const Runtime* runtime = nullptr;  // whose parts names may mean
  bool logits = true;                // scores are logits; else predictions as they are
};

// Samples of some metrics, collected over batches. Metrics of pieces of kAny keep none, others 8 bytes a sample (12
// where samples have weights) and 8 for each key, on every rank in the end, and some 40 while they compute.
class MetricSet {
 public:
  // Names as for make_metric(); metrics over groups have one more option, `key`: the column of ids whose first one in a
  // sample is its group. Those without ids are one group.
  explicit MetricSet(const std::vector<std::string>& names = kUsualMetrics, MetricSetOptions options = {});

  const std::vector<std::string>& names() const { return names_; }
  // The columns that add() wants, each once.
  const std::vector<std::string>& keys() const { return keys_; }
  bool takes_any_labels(const std::string& name) const;  // Metric::Info::any_labels of one of names()
  // kInvalidArgument: it is none of the set's, or has no best value.
  double cost(const std::string& name, double value) const;

  // float32, equally many of any shape; `columns`: with keys(), of the same samples; `weights`: of the samples, not
  // negative, undefined: 1. kInvalidArgument otherwise, and for a score that is not a number.
  void add(const Tensor& scores, const Tensor& labels, const KeyedJaggedTensor* columns = nullptr,
           const Tensor& weights = {});

  MetricValues values() const;                           // of what was added here
  MetricValues values(const ProcessGroup& group) const;  // of what was added on all ranks. Collective
  void clear();                                          // as if nothing was added

 private:
  struct One {
    MetricPtr metric;
    size_t key = 0;            // in keys_, of metrics over groups
    std::vector<double> sums;  // of metrics of any pieces
  };
  // The values that are kept, by column.
  struct Kept {
    std::vector<float> scores, labels, weights;  // no weights: all 1
    std::vector<std::vector<int64_t>> keys;
  };
  const One& one(const std::string& name) const;
  void add_any(std::span<const float> scores, std::span<const float> labels, std::span<const float> weights);
  void keep_weights(std::span<const float> weights, size_t samples);
  void keep_keys(const KeyedJaggedTensor* columns, int64_t samples);
  MetricValues values_of(const std::vector<One>& sums, const Kept& kept, int64_t samples) const;
  Kept gathered(const ProcessGroup& group) const;

  std::vector<std::string> names_, keys_;
  bool logits_ = true;
  bool keeps_ = false;  // some metric wants samples
  std::vector<One> metrics_;
  Kept kept_;
  int64_t samples_ = 0;
};

}  // namespace tessera
