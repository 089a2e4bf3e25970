#include "tessera/metrics.h"

#include <cmath>
#include <limits>

#include "metrics/formulas.h"
#include "tessera/abi/draft/metric.h"
#include "tessera/calls.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

// A metric from a plugin.
class MetricComponent : public Metric {
 public:
  explicit MetricComponent(ComponentPtr part) : Metric(asked(*part)), part_(std::move(part)) {}

  void add(const MetricSamples& s, std::span<double> sums) const override {
    const tsr_metric_samples samples{
        sizeof(samples), 0, std::ssize(s.scores), s.scores.data(), s.predictions.data(), s.labels.data(),
        s.weights.data()};
    plugin::call({*part_, "add samples", {}, part_->id()}, part_->api<tsr_metric>().add, part_->self(), &samples,
                 sums.data());
  }
  double value(std::span<const double> sums) const override {
    double out = 0;
    plugin::call({*part_, "value", {}, part_->id()}, part_->api<tsr_metric>().value, part_->self(), sums.data(), &out);
    return out;
  }

 private:
  static Info asked(const Component& part) {
    constexpr int64_t kMostSums = 1 << 24;
    tsr_metric_info info{sizeof(info), 0, 0, 0, 0};
    plugin::call({part, "info", {}, part.id()}, part.api<tsr_metric>().info, part.self(), &info);
    const bool known = info.pieces >= TSR_METRIC_ANY && info.pieces <= TSR_METRIC_ALL &&
                       info.best >= TSR_METRIC_BEST_NONE && info.best <= TSR_METRIC_BEST_ONE;
    if (!known || info.sums < 1 || info.sums > kMostSums)
      fail(Code::kInternal, "the metric ", part.id(), " wants ", info.sums, " sums of pieces ", info.pieces,
           " with best value ", info.best, ", which tessera.metric/draft-1 does not have");
    return {static_cast<Pieces>(info.pieces), static_cast<Best>(info.best), info.sums};
  }

  ComponentPtr part_;
};

}  // namespace

double Metric::cost(double value) const {
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  switch (info_.best) {
    case Best::kLargest:
      return -value;
    case Best::kOne:
      return std::abs(value - 1);
    default:
      return value;
  }
}

MetricPtr make_metric(const std::string& name, const Runtime* runtime) {
  const ComponentName part = parse_component_name(name);
  MetricPtr own = metrics::make_formula(part.id, part.options, /*as_torchrec=*/false);
  if (own && (!part.name.empty() || !part.inner.empty()))
    fail(Code::kInvalidArgument, "the metric ", part.id, " wraps no other metric: \"", name, "\"");
  if (own) return own;
  if (runtime && runtime->has(TSR_METRIC_KIND, part.id))
    return std::make_shared<MetricComponent>(runtime->create(TSR_METRIC_KIND, name));
  std::vector<std::string> known = metric_names();
  if (runtime) {
    for (const std::string& id : runtime->ids(TSR_METRIC_KIND)) known.push_back(id);
  }
  fail(Code::kNotFound, sdk::unknown_name("metric", part.id, known), ", and there are ", sdk::joined(known));
}

std::vector<std::string> metric_names() { return metrics::formula_names(); }

double MetricValues::operator[](const std::string& name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  std::string all;
  for (const auto& [known, value] : values) all += (all.empty() ? "" : ", ") + known;
  fail(Code::kInvalidArgument, "the metric \"", name, "\" was not asked for, only ", all);
}

}  // namespace tessera
