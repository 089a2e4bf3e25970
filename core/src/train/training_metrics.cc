#include "train/training_metrics.h"

#include <algorithm>

#include "metrics/formulas.h"

namespace tessera {

TrainingMetrics::TrainingMetrics(const MetricsConfig& config, const Runtime& runtime, int world_size) {
  for (const std::string& name : config.training) {
    MetricPtr metric = make_metric(name, &runtime);
    if (metric->info().pieces != Metric::Pieces::kAny)
      fail(Code::kInvalidArgument, "metrics.training has \"", name, "\", which wants ",
           metric->info().pieces == Metric::Pieces::kGroup ? "all samples of a group" : "all samples",
           " together, but training batches are not kept: auc?bins=1000 is one for these");
    metrics_.emplace_back(name, std::move(metric), std::max<int64_t>(1, config.window / world_size));
  }
}

void TrainingMetrics::add(const Tensor& logits, const Tensor& labels) {
  std::vector<double> predictions, wide;
  for (const float z : logits.span<float>()) predictions.push_back(metrics::sigmoid(z));
  for (const float y : labels.span<float>()) wide.push_back(y);
  for (RecMetric& metric : metrics_) metric.update(predictions, wide, {});
}

std::vector<std::pair<std::string, double>> TrainingMetrics::values(const ProcessGroup& group) const {
  std::vector<double> sums;
  for (const RecMetric& metric : metrics_) {
    for (const std::vector<double>& of : {metric.lifetime_sums(), metric.window_sums()})
      sums.insert(sums.end(), of.begin(), of.end());
  }
  const Tensor all = Tensor::from(sums);
  if (group.world_size() > 1) group.all_reduce(all, ReduceOp::kSum, "metrics of training").wait();
  std::vector<std::pair<std::string, double>> out;
  size_t at = 0;
  for (const RecMetric& metric : metrics_) {
    for (const char* of : {"lifetime_", "window_"}) {
      const size_t n = metric.lifetime_sums().size();
      out.emplace_back(of + metric.name(), metric.value_of(all.span<double>().subspan(at, n)));
      at += n;
    }
  }
  return out;
}

}  // namespace tessera
