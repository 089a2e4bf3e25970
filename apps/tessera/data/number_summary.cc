#include "data/number_summary.h"

#include <algorithm>
#include <cmath>

namespace tessera::cli {

void NumberSummary::moments(double value, double times) {
  if (count_ == 0) least_ = most_ = value;
  least_ = std::min(least_, value);
  most_ = std::max(most_, value);
  const double n = static_cast<double>(count_) + times, before = value - mean_;
  mean_ += before * times / n;
  squares_ += before * (value - mean_) * times;
}

// Reservoir sampling: the i-th number replaces a kept one with probability kSample / i.
void NumberSummary::add(double value) {
  moments(value, 1);
  ++count_;
  whole_ += value == std::floor(value) ? 1 : 0;
  if (sample_.size() < kSample) {
    sample_.push_back(value);
  } else if (const uint64_t at = random_.below(static_cast<uint64_t>(count_)); at < kSample) {
    sample_[at] = value;
  }
}

void NumberSummary::add(double value, int64_t times) {
  for (int64_t i = 0; i < times; ++i) add(value);
}

double NumberSummary::deviation() const { return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)); }

std::vector<double> NumberSummary::sample() const {
  std::vector<double> out = sample_;
  std::sort(out.begin(), out.end());
  return out;
}

double quantile(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return 0;
  const double at = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], at - static_cast<double>(below));
}

}  // namespace tessera::cli
