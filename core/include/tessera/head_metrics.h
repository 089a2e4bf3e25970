// tessera/head_metrics.h - how good each head of a model is: metrics by name, of all heads or of one.
//
//   HeadMetrics metrics(trainer.predictions(), {"auc", "stars.rmse"});
//   metrics.add(trainer.predict(batch), batch);            // on every rank, of each batch
//   double auc = metrics.values(group)["click.auc"];
//
// A model with one head calls its values as they were asked for; a model with several heads, "HEAD.METRIC".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"

namespace tessera {

// The prediction of a head for each sample: one value.
struct Prediction {
  std::string head;    // its name
  size_t label = 0;    // Batch::label() that it is about
  bool logits = true;  // it is the logit of the label; else the label itself
};

// A metric of a head.
struct HeadMetric {
  size_t head = 0;    // in `heads`
  std::string name;   // of the metric, for make_metric()
  std::string shown;  // its name among all
};
// Those that `names` mean: "HEAD.METRIC" of that head; "METRIC" of every head that it fits, which are those of logits,
// and of a metric of any numbers all. kInvalidArgument: one that fits no head; otherwise as make_metric().
std::vector<HeadMetric> head_metrics(const std::vector<Prediction>& heads, const std::vector<std::string>& names,
                                     const Runtime* runtime = nullptr);

class HeadMetrics {
 public:
  // `names` empty: kUsualMetrics of heads of logits, rmse and mae of others. Errors: head_metrics(), and a metric of a
  // head that is asked for twice.
  explicit HeadMetrics(std::vector<Prediction> heads, std::vector<std::string> names = {},
                       const Runtime* runtime = nullptr);

  // The columns that batches must have, each once.
  std::vector<std::string> keys() const;
  // The name in values() of what `monitor` means: "HEAD.METRIC", "METRIC" for the first head that has it, or empty for
  // the first one of all. kInvalidArgument: it is none of them.
  std::string shown(const std::string& monitor) const;
  // MetricSet::cost of a name in values().
  double cost(const std::string& shown, double value) const;

  // Adds the result of Trainer::predict() for a batch. Weighs samples as the batch does.
  void add(const std::vector<Tensor>& scores, const Batch& batch);
  MetricValues values() const;                           // of what was added here
  MetricValues values(const ProcessGroup& group) const;  // of what was added on all ranks. Collective

 private:
  struct Head {
    Prediction prediction;
    std::vector<std::string> shown;  // of each metric of the set
    MetricSet set;
  };
  template <class Values>
  MetricValues gather(const Values& values_of) const;

  std::vector<Head> heads_;
};

}  // namespace tessera
