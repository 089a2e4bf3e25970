// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.lift: how many times as many positives the best part of the predictions has as an equal part taken blindly.
#include <tessera/sdk/draft/metric.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

using namespace tessera::sdk;

class Lift : public Metric {
 public:
  explicit Lift(Options& options) : part_(options.number("at", 0.1)) {
    if (!(part_ > 0 && part_ <= 1)) fail(TSR_INVALID_ARGUMENT, "option \"at\" must be above 0, and at most 1");
  }

  // All samples come together, for the best of them are wanted. With TSR_METRIC_ANY they come as they are read, and
  // none is kept.
  MetricInfo info() const override { return {TSR_METRIC_ALL, TSR_METRIC_BEST_LARGEST, 1}; }

  void add(const MetricSamples& samples, std::span<double> sums) const override {
    std::vector<size_t> order(samples.scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return samples.scores[a] > samples.scores[b]; });
    const auto best = static_cast<size_t>(std::ceil(part_ * static_cast<double>(order.size())));
    double found = 0, all = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      all += samples.labels[order[i]];
      if (i < best) found += samples.labels[order[i]];
    }
    sums[0] += (found / static_cast<double>(best)) / (all / static_cast<double>(order.size()));
  }

  double value(std::span<const double> sums) const override { return sums[0]; }

 private:
  double part_;
};

TESSERA_PLUGIN(
    "acme-lift", "1.0.0",
    component<Lift>({.id = "acme.lift", .version = "1.0.0", .about = "positives among the best predictions"}));
