// tessera/metrics.h - metrics of predictions by name, over all ranks: AUC, logloss, NDCG, or a plugin's own.
//
//   MetricSet metrics({"auc", "logloss", "ndcg?k=10&key=user"});
//   metrics.add(logits, batch.labels, &batch.sparse);     // on every rank, of each batch
//   MetricValues values = metrics.values(group);          // the same on all ranks
//   double auc = values["auc"];
//
// A metric is a formula over sums (abi/draft/metric.h). The sums are over any samples, over each group of samples, or
// over all samples together. So ranks can merge them exactly, no matter which rank had which samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/jagged_tensor.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

// All spans have the same length. `scores`: the model's outputs. `predictions`: of labels; for logits their
// probabilities. If `classes` is above 0, scores and predictions have that many logits for each sample, one for each
// class.
struct MetricSamples {
  std::span<const double> scores, predictions, labels, weights;
  int64_t classes = 0;
};

// A formula. It keeps no samples, and any number of threads may use it.
class Metric {
 public:
  enum class Pieces { kAny, kGroup, kAll };  // samples that must be in the same call of add()
  enum class Best { kNone, kLargest, kSmallest, kOne };
  struct Info {
    Pieces pieces = Pieces::kAny;
    Best best = Best::kNone;
    int64_t sums = 1;
    bool any_labels = false;    // true: any numbers; false: labels from 0 to 1
    int64_t least_classes = 0;  // above 0: labels are classes, and there are at least this many
    int64_t sums_of_class = 0;  // number of sums for each class; they follow the other sums
  };

  explicit Metric(Info info) : info_(info) {}
  virtual ~Metric() = default;
  const Info& info() const { return info_; }
  // Adds samples to `sums`, which has number_of_sums() elements. kInvalidArgument: the metric cannot take the labels.
  virtual void add(const MetricSamples& samples, std::span<double> sums) const = 0;
  // NaN: it is not defined.
  virtual double value(std::span<const double> sums) const = 0;
  size_t number_of_sums(int64_t classes) const {
    return static_cast<size_t>(info_.sums + info_.sums_of_class * classes);
  }
  // Converts a value so that less is better; infinite if `value` is NaN.
  double cost(double value) const;

 private:
  Info info_;
};
using MetricPtr = std::shared_ptr<const Metric>;

// These formulas use p for a prediction, y for a label, w for a weight, s for a score. Logarithms are natural, and a p
// inside one is kept 2^-24 away from 0 and 1. Labels are from 0 to 1, but any numbers for mse, rmse, mae, ctr and
// weighted_avg. The value is NaN without samples, and if a divisor is 0.
//
//   auc                 the probability that a positive has a greater score than a negative, exact over all pairs, ties
//                       count one half; `bins` > 0: computed from p in that many equal bins, which keeps no samples
//   gauc                the mean of the groups' AUC, weighted by their samples, without groups of one class
//   logloss             mean of -y ln p - (1 - y) ln(1 - p)
//   normalized_entropy  logloss / the entropy of mean(y): 1 for the best constant guess; also `ne` (He et al.,
//                       Practical Lessons from Predicting Clicks on Ads at Facebook, 2014)
//   calibration         sum w p / sum w y
//   mse, rmse, mae      of p and y
//   accuracy, precision, recall    of p >= `threshold` (0.5) and y >= 0.5
//   ctr, weighted_avg   mean of y, of p
//   ndcg                mean over groups with a positive label of DCG / the best DCG: the sum of y / log2(rank + 1)
//                       over the `k` (10) samples with the greatest scores; for equal scores the mean over their orders
//   recall_at_k         mean over the same groups: the part of sum y that is in these k
//   hit_rate            mean over the same groups: 1 if a label of 0.5 or more is in these k, else 0
// These take ranks among all items, which the layer item_ranks gives (1: first; 0: a miss; -1: left out), any labels:
//   hit_rate@K, recall@K, ndcg@K, mrr@K, and mrr for all places. Each sample is a user with one item. With the options
//   `by_group` = true and `key`, samples with one key are the items of one user; the value is the mean over users of:
//   1 if an item is in the first K places, else 0; the part of the items there; the sum of 1 / log2(rank + 1) / the
//   best sum; 1 / the least rank there.
// These are of heads of classes (Prediction::classes). Labels are numbers of classes from 0 on, scores are the classes'
// logits, and p is the softmax of these. For equal scores the value is the mean over their orders.
//   multiclass_accuracy     the share of samples whose class is among the `k` (1) with the greatest scores;
//                           multiclass_recall is TorchRec's name of it
//   multiclass_logloss      mean of -ln p of the label
//   multiclass_normalized_entropy   multiclass_logloss / the entropy of the classes' shares of the samples
//   macro_precision, macro_recall, macro_f1   the mean over the classes that occur, as a label or as the class with the
//                           greatest score; 0 for a class whose divisor is 0
//   macro_auc               the mean of the classes' AUC by p, one class against the rest; exact, from all samples. A
//                           class that no sample has, or every one, does not count
//
// Other metrics are components of the kind tessera.metric. All may have options: "ndcg?k=5". kInvalidArgument: wrong
// options. kNotFound, with the nearest name: no such metric.
MetricPtr make_metric(const std::string& name, const Runtime* runtime = nullptr);
std::vector<std::string> metric_names();  // of those above, ascending

// The values, in the order in which they were requested.
struct MetricValues {
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> values;
  double operator[](const std::string& name) const;  // kInvalidArgument: it was not asked for
};

inline const std::vector<std::string> kUsualMetrics = {"auc", "logloss", "normalized_entropy", "calibration"};
inline const std::vector<std::string> kUsualClassMetrics = {"multiclass_accuracy", "multiclass_logloss",
                                                            "multiclass_normalized_entropy"};

struct MetricSetOptions {
  const Runtime* runtime = nullptr;    // resolves names of plugins' metrics
  bool logits = true;                  // true: scores are logits; false: they are predictions
  std::optional<int64_t> classes = 0;  // Prediction::classes; unset: only names and options are checked
};

// Collects samples for some metrics over batches. Metrics of kind kAny keep no samples. Others keep 8 bytes per sample
// (12 with weights) and 8 for each key, finally on every rank, and about 40 while they compute.
class MetricSet {
 public:
  // Takes names as in make_metric(). Metrics over groups have one more option, `key`: the id column whose first id in a
  // sample is its group. Samples without an id form one group.
  explicit MetricSet(const std::vector<std::string>& names = kUsualMetrics, MetricSetOptions options = {});

  const std::vector<std::string>& names() const { return names_; }
  // The columns that add() needs, each once.
  const std::vector<std::string>& keys() const { return keys_; }
  const Metric::Info& info(const std::string& name) const;  // of one of names()
  // kInvalidArgument: the metric is not in the set, or has no best value.
  double cost(const std::string& name, double value) const;

  // All are float32 with equally many elements, of any shape. `columns`: has keys(), for the same samples. `weights`:
  // not negative; undefined: 1. For classes, scores are [samples, classes]. kInvalidArgument: otherwise, and for a
  // score that is NaN, or infinite with classes.
  void add(const Tensor& scores, const Tensor& labels, const KeyedJaggedTensor* columns = nullptr,
           const Tensor& weights = {});

  MetricValues values() const;                           // over the samples added here
  MetricValues values(const ProcessGroup& group) const;  // over the samples added on all ranks. Collective
  void clear();                                          // removes all samples

 private:
  struct One {
    MetricPtr metric;
    size_t key = 0;            // index in keys_, for metrics over groups
    std::vector<double> sums;  // for metrics that keep no samples
  };
  // Samples that are kept, by column.
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
  std::optional<int64_t> classes_ = 0;
  bool keeps_ = false;  // true: some metric needs samples
  std::vector<One> metrics_;
  Kept kept_;
  int64_t samples_ = 0;
};

// A head's prediction: one value per sample, or one for each class.
struct Prediction {
  std::string head;                            // its name
  size_t label = 0;                            // index of the predicted label: Batch::label()
  bool logits = true;                          // true: the label's logit; false: the label itself
  std::optional<size_t> where = std::nullopt;  // index of HeadSpec::where; unset: all samples count
  // Number of classes; 0: the label is no class. With classes the label is the number of one, and a sample's values are
  // their logits. Unset: this is not known yet, and every metric fits.
  std::optional<int64_t> classes = 0;
  bool usual = true;  // false: it has only metrics that are asked for, because its value is a loss or a rank
};

// Factors of a batch's samples in a head's loss and metrics, [B]: their weights, and 0 where the label `where` is below
// 0.5. Undefined: 1 for all. The result may be in `memory`, which is made larger if it has to be.
Tensor counted_weights(const Batch& batch, const std::optional<size_t>& where, Tensor& memory);

// A metric of a head.
struct HeadMetric {
  size_t head = 0;    // index in `heads`
  std::string name;   // name for make_metric()
  std::string shown;  // its name in values()
};
// Resolves names: "HEAD.METRIC" for that head, "METRIC" for every head that it fits. A metric of classes fits heads of
// classes. Others fit the heads of logits, or all heads of one value if the metric takes any numbers. kInvalidArgument:
// a name fits no head, or not the head that it names. Other errors are those of make_metric().
std::vector<HeadMetric> head_metrics(const std::vector<Prediction>& heads, const std::vector<std::string>& names,
                                     const Runtime* runtime = nullptr);

// Metrics of a model's heads, for all heads or for one. A model with one head uses the requested names for its values.
// A model with several heads uses "HEAD.METRIC".
//
//   HeadMetrics metrics(trainer.predictions(), {"auc", "stars.rmse"});
//   metrics.add(trainer.predict(batch), batch);            // on every rank, of each batch
//   double auc = metrics.values(group)["click.auc"];
class HeadMetrics {
 public:
  // `names` empty: kUsualMetrics for heads of logits, kUsualClassMetrics for heads of classes, rmse and mae for others,
  // none for heads that are not `usual`. Errors are those of head_metrics(), and a duplicate metric of a head.
  explicit HeadMetrics(std::vector<Prediction> heads, std::vector<std::string> names = {},
                       const Runtime* runtime = nullptr);

  // The columns that batches must have, each once.
  std::vector<std::string> keys() const;
  // Returns the name in values() for `monitor`: "HEAD.METRIC", "METRIC" for the first head that has it, or empty for
  // the first of all. kInvalidArgument: it is none of them.
  std::string shown(const std::string& monitor) const;
  // MetricSet::cost of a name in values().
  double cost(const std::string& shown, double value) const;

  // Adds the result of Trainer::predict() for a batch, with the batch's sample weights.
  void add(const std::vector<Tensor>& scores, const Batch& batch);
  MetricValues values() const;                           // over the samples added here
  MetricValues values(const ProcessGroup& group) const;  // over the samples added on all ranks. Collective

 private:
  struct Head {
    Prediction prediction;
    std::vector<std::string> shown;  // of each metric in the set
    MetricSet set;
  };
  template <class Values>
  MetricValues gather(const Values& values_of) const;

  std::vector<Head> heads_;
};

}  // namespace tessera
