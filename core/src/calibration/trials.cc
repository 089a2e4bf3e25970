#include "calibration/trials.h"

#include <algorithm>

#include "distributed/stopwatch.h"

namespace tessera {
namespace {

constexpr int kMostSamples = 2000;

void add_sample(const std::vector<double>& one, std::vector<std::vector<double>>* samples) {
  samples->resize(one.size());
  for (size_t i = 0; i < one.size(); ++i) (*samples)[i].push_back(one[i]);
}

}  // namespace

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `samples` has the samples of each time.
std::vector<double> Trials::mean_of_medians(std::vector<std::vector<double>> samples) const {
  std::vector<double> medians;
  for (std::vector<double>& s : samples) medians.push_back(median_of(std::move(s)));
  if (group_.world_size() == 1) return medians;
  const Tensor sum = Tensor::from(medians);
  group_.all_reduce(sum, ReduceOp::kSum, "calibrate").wait();
  medians = sum.to_vector<double>();
  for (double& m : medians) m /= group_.world_size();
  return medians;
}

std::vector<double> Trials::times(const std::function<std::vector<double>()>& body) const {
  group_.barrier("calibrate");
  body();  // touch the memory and warm up the code
  std::vector<std::vector<double>> samples;
  const Stopwatch watch;
  for (int n = 0; n < options_.least || (watch.seconds() < options_.seconds && n < kMostSamples); ++n)
    add_sample(body(), &samples);
  return mean_of_medians(std::move(samples));
}

double Trials::time(const std::function<void()>& body, const std::function<void()>& prepare) const {
  return times([&] {
    if (prepare) prepare();
    const Stopwatch watch;
    body();
    return std::vector<double>{watch.seconds()};
  })[0];
}

std::vector<double> Trials::times_together(const std::function<std::vector<double>()>& body) const {
  constexpr int kProbes = 3;
  constexpr double kMost = 500;
  for (int i = 0; i < kProbes; ++i) body();
  const Stopwatch watch;
  for (int i = 0; i < kProbes; ++i) body();
  const double each = std::max(1e-7, (watch.seconds()) / kProbes);
  const Tensor count = Tensor::from<int32_t>(
      {static_cast<int32_t>(std::clamp(options_.seconds / each, static_cast<double>(options_.least), kMost))});
  group_.broadcast(count, 0, "calibrate").wait();
  std::vector<std::vector<double>> samples;
  for (int i = 0; i < count.item(); ++i) add_sample(body(), &samples);
  return mean_of_medians(std::move(samples));
}

double Trials::time_together(const std::function<void()>& body) const {
  return times_together([&] {
    const Stopwatch watch;
    body();
    return std::vector<double>{watch.seconds()};
  })[0];
}

std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& a, const std::vector<double>& b,
                                    const std::vector<double>& scale) {
  // Coordinate descent on the sum of squared relative errors. The problem is convex, and small enough for many rounds.
  constexpr int kRounds = 20000;
  const size_t n = a.front().size();
  std::vector<double> x(n, 0.0), error(b.size());
  for (size_t i = 0; i < b.size(); ++i) error[i] = -b[i] / scale[i];  // (a x - b) / scale
  for (int round = 0; round < kRounds; ++round) {
    for (size_t k = 0; k < n; ++k) {
      double slope = 0, curvature = 0;
      for (size_t i = 0; i < b.size(); ++i) {
        const double w = a[i][k] / scale[i];
        slope += w * error[i];
        curvature += w * w;
      }
      if (curvature <= 0) continue;
      const double moved = std::max(0.0, x[k] - slope / curvature) - x[k];
      x[k] += moved;
      for (size_t i = 0; i < b.size(); ++i) error[i] += moved * a[i][k] / scale[i];
    }
  }
  return x;
}

}  // namespace tessera
