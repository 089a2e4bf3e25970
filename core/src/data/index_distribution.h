// The distribution of rows in synthetic lookups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "tessera/sdk/random.h"

namespace tessera::data {

// "uniform" or "zipf:A". Zipf gives row k with probability proportional to 1 / (k + 1)^A, exactly, for any A >= 0. It
// uses rejection-inversion (Hörmann, Derflinger: Rejection-inversion to generate variates from monotone discrete
// distributions, 1996), whose time and memory do not depend on the number of rows.
class IndexDistribution {
 public:
  // kInvalidArgument: any other text.
  IndexDistribution(const std::string& text, int64_t rows);
  int64_t operator()(sdk::Random& random) const;

 private:
  double integral(double x) const;  // of x^-A
  double inverse(double u) const;

  int64_t rows_;
  bool zipf_ = false;
  double exponent_ = 0;
  double low_ = 0, high_ = 0, shortcut_ = 0;
};

inline int64_t IndexDistribution::operator()(sdk::Random& random) const {
  if (!zipf_) return static_cast<int64_t>(random.below(static_cast<uint64_t>(rows_)));
  for (;;) {
    const double u = high_ + random.uniform() * (low_ - high_);
    const double x = inverse(u);
    const double k = std::min(std::max(std::floor(x + 0.5), 1.0), static_cast<double>(rows_));
    if (k - x <= shortcut_ || u >= integral(k + 0.5) - std::pow(k, -exponent_)) return static_cast<int64_t>(k) - 1;
  }
}

}  // namespace tessera::data
