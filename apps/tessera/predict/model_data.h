// Data for a packed model: batches as its predictor takes them, and how good its predictions are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"
#include "tessera/packed_model.h"

namespace tessera::cli {

// A batch of a reader as a predictor takes it: the model's features, in its order.
class BatchInput {
 public:
  // kInvalidArgument where data with these columns and dense inputs does not fit the model; the sentence names both.
  BatchInput(const ModelDescription& model, const std::vector<DataColumn>& columns, int64_t dense_inputs);
  // Borrows `batch`, and is valid until the next call.
  const PredictInput& from(const Batch& batch);

 private:
  std::vector<size_t> column_of_;  // by feature
  std::vector<int64_t> values_;
  std::vector<int32_t> lengths_;
  std::vector<PredictInput::Feature> features_;
  PredictInput input_;
};

// Scores of all samples in their order, a batch at a time, and the labels that they are about.
using ScoreSink = std::function<void(std::span<const float> scores, const Tensor& labels, const Batch& batch)>;
// kInvalidArgument: of several labels none is the one that the model predicts.
void predict_all(Predictor& predictor, const Dataset& data, const Samples& samples, int64_t batch,
                 const ScoreSink& sink);

// Metrics of the model's scores: the usual ones; of streamed samples the AUC over bins, for which none is kept.
MetricSet metrics_of(const ModelDescription& model, bool streamed);
// Adds a batch's. Scores in (0, 1) as the logits that gave them.
void add_scores(MetricSet& metrics, const ModelDescription& model, std::span<const float> scores, const Tensor& labels,
                const Batch& batch);

}  // namespace tessera::cli
