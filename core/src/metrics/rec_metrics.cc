#include "metrics/rec_metrics.h"

#include <algorithm>

#include "metrics/formulas.h"
#include "tessera/error.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

MetricPtr as_torchrec(const std::string& name) {
  const ComponentName part = parse_component_name(name);
  MetricPtr metric = metrics::make_formula(part.id, part.options, /*as_torchrec=*/true);
  return metric ? metric : make_metric(name);
}

}  // namespace

RecMetric::RecMetric(const std::string& name, int64_t window_size) : RecMetric(name, as_torchrec(name), window_size) {}

RecMetric::RecMetric(const std::string& name, MetricPtr metric, int64_t window_size, int64_t classes)
    : name_(name), metric_(std::move(metric)), window_size_(window_size), classes_(classes) {
  if (window_size < 1)
    fail(Code::kInvalidArgument, "a window of ", window_size, " samples is not possible: give 1 or more");
  if (metric_->info().pieces == Metric::Pieces::kGroup)
    fail(Code::kInvalidArgument, "the metric \"", name, "\" needs whole groups of samples, which a window splits");
  if (metric_->info().pieces == Metric::Pieces::kAll && metric_->info().least_classes > 0)
    fail(Code::kInvalidArgument, "the metric \"", name,
         "\" needs all samples of a head of classes, and a window keeps ",
         "sums of these: take another metric of classes");
  if (metric_->info().least_classes > classes)
    fail(Code::kInvalidArgument, "the metric \"", name, "\" needs a head of ", metric_->info().least_classes,
         " or more classes, but here are ", classes);
  if (metric_->info().pieces == Metric::Pieces::kAny) lifetime_.resize(metric_->number_of_sums(classes));
}

void RecMetric::update(std::span<const double> predictions, std::span<const double> labels,
                       std::span<const double> weights) {
  const auto each = static_cast<size_t>(std::max<int64_t>(1, classes_));
  if (labels.size() * each != predictions.size() || (!weights.empty() && weights.size() != labels.size())) {
    fail(Code::kInvalidArgument, "a batch has ", predictions.size(), " predictions, ", labels.size(), " labels and ",
         weights.size(), " weights, but needs the same number of each");
  }
  const std::vector<double> ones(weights.empty() ? labels.size() : 0, 1.0);
  if (weights.empty()) weights = ones;
  if (lifetime_.empty()) {
    for (size_t i = 0; i < predictions.size(); ++i) newest_.push_back({predictions[i], labels[i], weights[i]});
    while (std::ssize(newest_) > window_size_) newest_.pop_front();
    return;
  }
  Batch batch{std::ssize(labels), std::vector<double>(lifetime_.size())};
  metric_->add({predictions, predictions, labels, weights, classes_}, batch.sums);
  for (size_t k = 0; k < lifetime_.size(); ++k) lifetime_[k] += batch.sums[k];
  window_.push_back(std::move(batch));
  int64_t samples = 0;
  for (const Batch& b : window_) samples += b.samples;
  for (; window_.size() > 1 && samples > window_size_; window_.pop_front()) samples -= window_.front().samples;
}

std::vector<double> RecMetric::window_sums() const {
  std::vector<double> sums(lifetime_.size());
  for (const Batch& b : window_) {
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += b.sums[k];
  }
  return sums;
}

std::vector<std::pair<std::string, double>> RecMetric::compute() const {
  if (lifetime_.empty()) return {{"window_" + name_, value_of_newest()}};
  return {{"lifetime_" + name_, value_of(lifetime_)}, {"window_" + name_, value_of(window_sums())}};
}

double RecMetric::value_of_newest() const {
  std::vector<double> predictions, labels, weights;
  for (const Sample& s : newest_) {
    predictions.push_back(s.prediction);
    labels.push_back(s.label);
    weights.push_back(s.weight);
  }
  std::vector<double> sums(static_cast<size_t>(metric_->info().sums));
  metric_->add({predictions, predictions, labels, weights}, sums);
  return metric_->value(sums);
}

}  // namespace tessera
