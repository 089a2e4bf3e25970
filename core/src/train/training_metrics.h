// How good predictions of training batches are, each made before the model learned from the batch: progressive
// evaluation, over all samples so far and over the newest.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/config.h"
#include "tessera/head_metrics.h"
#include "tessera/process_group.h"
#include "tessera/rec_metrics.h"
#include "tessera/runtime.h"

namespace tessera {

class TrainingMetrics {
 public:
  // Of metrics.training and metrics.window. kInvalidArgument: a metric that wants samples together, head_metrics().
  TrainingMetrics(const MetricsConfig& config, std::vector<Prediction> heads, const Runtime& runtime, int world_size);

  // What Trainer::predict() would give of this rank's batch.
  void add(const std::vector<Tensor>& scores, const Batch& batch);
  // "lifetime_NAME" and "window_NAME" of each, of all ranks. Collective.
  std::vector<std::pair<std::string, double>> values(const ProcessGroup& group) const;

 private:
  std::vector<Prediction> heads_;
  std::vector<std::pair<size_t, RecMetric>> metrics_;  // of which head
};

}  // namespace tessera
