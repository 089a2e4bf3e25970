// Metrics of training batches, predicted before the model learns from them (progressive evaluation). They cover all
// samples so far, and a window of the newest ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "metrics/rec_metrics.h"
#include "tessera/config.h"
#include "tessera/metrics.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"

namespace tessera {

class TrainingMetrics {
 public:
  // Takes metrics.training and metrics.window. kInvalidArgument: a metric needs samples together, or head_metrics()
  // fails.
  TrainingMetrics(const MetricsConfig& config, std::vector<Prediction> heads, const Runtime& runtime, int world_size);

  // `scores` are what Trainer::predict() would give for this rank's batch.
  void add(const std::vector<Tensor>& scores, const Batch& batch);
  // Returns "lifetime_NAME" and "window_NAME" of each metric, over all ranks. Collective.
  std::vector<std::pair<std::string, double>> values(const ProcessGroup& group) const;

 private:
  std::vector<Prediction> heads_;
  std::vector<std::pair<size_t, RecMetric>> metrics_;  // with the index of its head
};

}  // namespace tessera
