// Measures times for a calibration: on all ranks at once, with medians, and with least squares over several workloads.
#pragma once

#include <functional>
#include <vector>

#include "tessera/process_group.h"

namespace tessera {

struct TrialOptions {
  double seconds = 0.04;  // seconds spent on one figure
  int least = 5;          // least number of samples of one figure
};

// Measures the seconds of `body`: the mean over the ranks of each rank's median. `prepare` runs before each sample and
// is not timed. Collective.
class Trials {
 public:
  Trials(const ProcessGroup& group, TrialOptions options) : group_(group), options_(options) {}
  int rank() const { return group_.rank(); }
  double time(const std::function<void()>& body, const std::function<void()>& prepare = {}) const;
  // Measures several times with one body, which returns them in seconds.
  std::vector<double> times(const std::function<std::vector<double>()>& body) const;
  // For bodies that are collective themselves: all ranks call them equally often.
  double time_together(const std::function<void()>& body) const;
  std::vector<double> times_together(const std::function<std::vector<double>()>& body) const;

 private:
  std::vector<double> mean_of_medians(std::vector<std::vector<double>> samples) const;

  const ProcessGroup& group_;
  TrialOptions options_;
};

// Finds the x >= 0 for which each sum of a[i][k] * x[k] is as close to b[i] as possible, in proportion to scale[i] > 0.
std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& a, const std::vector<double>& b,
                                    const std::vector<double>& scale);

double median_of(std::vector<double> values);

}  // namespace tessera
