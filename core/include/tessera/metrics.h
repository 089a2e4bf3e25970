// tessera/metrics.h - how good predicted logits are: AUC, logloss, normalized entropy, calibration.
//
//   Predictions mine;
//   mine.add(logits, batch.labels);              // on every rank
//   ... gather mine.logits() and mine.labels() of all ranks on one of them, all.add() each ...
//   BinaryMetrics m = all.metrics();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor.h"

namespace tessera {

// NaN where a value is not defined: all of them without samples, AUC and normalized entropy where only one class
// occurs, calibration without positives.
struct BinaryMetrics {
  int64_t samples = 0;
  int64_t positives = 0;
  // Probability that a positive has the greater logit than a negative, exact over all pairs; ties count one half.
  double auc = 0;
  // Mean of -log(probability given to the true label), each term at most 100 as in PyTorch's BCELoss.
  double logloss = 0;
  // logloss / entropy of the positive rate of these samples (He et al., Practical Lessons from Predicting Clicks on Ads
  // at Facebook, 2014): 1 for the best constant guess.
  double normalized_entropy = 0;
  // Sum of predicted probabilities / number of positives.
  double calibration = 0;
};

// One of them by its name: "auc", "logloss", "normalized_entropy", "calibration". kInvalidArgument for others.
double metric_value(const BinaryMetrics& metrics, const std::string& name);
// The same, turned so that less is better: -auc, |calibration - 1|, the others as they are. Infinite where the value is
// not defined.
double metric_cost(const BinaryMetrics& metrics, const std::string& name);

// Logits and labels collected over batches and ranks: two flat vectors, 8 bytes a sample.
class Predictions {
 public:
  // float32, equally many elements of any shape, labels 0 or 1. kInvalidArgument otherwise, and for a logit that is not
  // a number.
  void add(const Tensor& logits, const Tensor& labels);

  const std::vector<float>& logits() const { return logits_; }
  const std::vector<float>& labels() const { return labels_; }
  int64_t size() const { return static_cast<int64_t>(logits_.size()); }

  // O(n log n). The same for every order of the samples but for rounding of the sums.
  BinaryMetrics metrics() const;

 private:
  std::vector<float> logits_;
  std::vector<float> labels_;
};

// log(1 + exp(-z)) for label 1, log(1 + exp(z)) for label 0: binary cross-entropy from the logit, without overflow.
double logloss_of(double logit, bool label);

}  // namespace tessera
