// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/metric.h - base class of a metric: turns samples into sums, and sums into a value.
//
// abi/draft/metric.h is the specification. The core merges ranks, batches and windows by adding up sums.
//
//   class Brier : public Metric {  // the mean squared distance of probabilities from labels
//     MetricInfo info() const override { return {TSR_METRIC_ANY, TSR_METRIC_BEST_SMALLEST, 2}; }
//     void add(const MetricSamples& s, std::span<double> sums) const override { ... }
//     double value(std::span<const double> sums) const override { return sums[0] / sums[1]; }
//   };
#pragma once

#include <cstdint>
#include <span>

#include "tessera/abi/draft/metric.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"

namespace tessera::sdk {
inline namespace v1 {

struct MetricInfo {
  int32_t pieces = TSR_METRIC_ANY;
  int32_t best = TSR_METRIC_BEST_LARGEST;
  int64_t sums = 1;
};

// All spans have the same length.
struct MetricSamples {
  std::span<const double> scores, predictions, labels, weights;
};

class Metric {
 public:
  virtual ~Metric() = default;
  virtual MetricInfo info() const = 0;  // must never change
  virtual void add(const MetricSamples& samples, std::span<double> sums) const = 0;
  virtual double value(std::span<const double> sums) const = 0;

  static constexpr const char* kKind = TSR_METRIC_KIND;
  template <class C>
  static const tsr_metric table;

 private:
  template <class C>
  static const Metric& of(void* self) {
    return *static_cast<C*>(self);
  }
  template <class C>
  static size_t sums_of(void* self) {
    return static_cast<size_t>(of<C>(self).info().sums);
  }
  template <class C>
  static tsr_code info_slot(void* self, tsr_metric_info* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      const MetricInfo i = of<C>(self).info();
      write_struct(tsr_metric_info{sizeof(tsr_metric_info), 0, i.pieces, i.best, i.sums}, out);
    });
  }
  template <class C>
  static tsr_code add_slot(void* self, const tsr_metric_samples* given, double* sums, tsr_error* err) noexcept {
    return guard(err, [&] {
      const tsr_metric_samples s = read_struct(*given);
      check_flags(s.flags, 0, "the samples");
      const auto n = static_cast<size_t>(s.count);
      of<C>(self).add({{s.scores, n}, {s.predictions, n}, {s.labels, n}, {s.weights, n}}, {sums, sums_of<C>(self)});
    });
  }
  template <class C>
  static tsr_code value_slot(void* self, const double* sums, double* out, tsr_error* err) noexcept {
    return guard(err, [&] { *out = of<C>(self).value({sums, sums_of<C>(self)}); });
  }
};

template <class C>
constexpr tsr_metric Metric::table = {sizeof(tsr_metric), 0, &info_slot<C>, &add_slot<C>, &value_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
