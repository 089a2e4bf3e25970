// tessera/head_metrics.h - metrics of a model's heads by name, for all heads or for one.
//
//   HeadMetrics metrics(trainer.predictions(), {"auc", "stars.rmse"});
//   metrics.add(trainer.predict(batch), batch);            // on every rank, of each batch
//   double auc = metrics.values(group)["click.auc"];
//
// A model with one head uses the requested names for its values. A model with several heads uses "HEAD.METRIC".
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"

namespace tessera {

// A head's prediction: one value per sample.
struct Prediction {
  std::string head;                            // its name
  size_t label = 0;                            // index of the predicted label: Batch::label()
  bool logits = true;                          // true: the label's logit; false: the label itself
  std::optional<size_t> where = std::nullopt;  // index of HeadSpec::where; unset: all samples count
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
// Resolves names: "HEAD.METRIC" for that head, "METRIC" for every head that it fits. Those are the heads of logits, or
// all heads if the metric takes any numbers. kInvalidArgument: a name fits no head. Other errors are those of
// make_metric().
std::vector<HeadMetric> head_metrics(const std::vector<Prediction>& heads, const std::vector<std::string>& names,
                                     const Runtime* runtime = nullptr);

class HeadMetrics {
 public:
  // `names` empty: kUsualMetrics for heads of logits, rmse and mae for others. Errors are those of head_metrics(), and
  // a duplicate metric of a head.
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
