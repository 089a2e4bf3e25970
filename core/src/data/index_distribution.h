// The distribution of rows in synthetic lookups.
#pragma once

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

}  // namespace tessera::data
