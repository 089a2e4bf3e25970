#include "train/training_metrics.h"

#include <algorithm>

#include "metrics/formulas.h"

namespace tessera {

TrainingMetrics::TrainingMetrics(const MetricsConfig& config, std::vector<Prediction> heads, const Runtime& runtime,
                                 int world_size)
    : heads_(std::move(heads)) {
  for (const HeadMetric& m : head_metrics(heads_, config.training, &runtime)) {
    const int64_t classes = heads_[m.head].classes.value_or(0);
    const bool groups = !MetricSet({m.name}, {.runtime = &runtime, .classes = classes}).keys().empty();
    MetricPtr metric = groups ? nullptr : make_metric(m.name, &runtime);
    if (groups || metric->info().pieces != Metric::Pieces::kAny)
      fail(Code::kInvalidArgument, "metrics.training has \"", m.name, "\", which wants ",
           groups ? "all samples of a group" : "all samples",
           " together, but training batches are not kept: ", classes > 0 ? "multiclass_accuracy" : "auc?bins=1000",
           " is one for these");
    metrics_.emplace_back(
        m.head, RecMetric(m.shown, std::move(metric), std::max<int64_t>(1, config.window / world_size), classes));
  }
}

void TrainingMetrics::add(const std::vector<Tensor>& scores, const Batch& batch) {
  const auto wide = [](const Tensor& t) {
    return t.defined() ? std::vector<double>(t.span<float>().begin(), t.span<float>().end()) : std::vector<double>();
  };
  for (size_t h = 0; h < heads_.size(); ++h) {
    Tensor memory;
    const std::vector<double> weights = wide(counted_weights(batch, heads_[h].where, memory));
    std::vector<double> predictions = wide(scores[h]);
    if (heads_[h].logits) {
      for (double& p : predictions) p = metrics::sigmoid(p);
    }
    const std::vector<double> labels = wide(batch.label(heads_[h].label));
    for (auto& [head, metric] : metrics_) {
      if (head == h) metric.update(predictions, labels, weights);
    }
  }
}

std::vector<std::pair<std::string, double>> TrainingMetrics::values(const ProcessGroup& group) const {
  std::vector<double> sums;
  for (const auto& [head, metric] : metrics_) {
    for (const std::vector<double>& of : {metric.lifetime_sums(), metric.window_sums()})
      sums.insert(sums.end(), of.begin(), of.end());
  }
  const Tensor all = Tensor::from(sums);
  if (group.world_size() > 1) group.all_reduce(all, ReduceOp::kSum, "metrics of training").wait();
  std::vector<std::pair<std::string, double>> out;
  size_t at = 0;
  for (const auto& [head, metric] : metrics_) {
    for (const char* of : {"lifetime_", "window_"}) {
      const size_t n = metric.lifetime_sums().size();
      out.emplace_back(of + metric.name(), metric.value_of(all.span<double>().subspan(at, n)));
      at += n;
    }
  }
  return out;
}

}  // namespace tessera
