// Estimates the number of different values in 16 KiB, whatever their number: HyperLogLog (Flajolet et al., 2007) with
// the estimator of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which needs no
// correction for small and large counts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tessera::cli {

class HyperLogLog {
 public:
  static constexpr int kBits = 14;  // the standard error is 1.04 / sqrt(2^14), 0.8 %

  // `hash` has 64 well-mixed bits of the value.
  void add(uint64_t hash) {
    const uint64_t rest = hash << kBits;
    const auto rank = static_cast<uint8_t>(rest == 0 ? kRanks : std::countl_zero(rest) + 1);
    uint8_t& at = registers_[hash >> (64 - kBits)];
    at = std::max(at, rank);
  }

  double count() const {
    std::array<double, kRanks + 1> histogram{};  // number of registers with each value
    for (const uint8_t rank : registers_) histogram[rank] += 1;
    constexpr double kRegisters = 1 << kBits;
    double z = kRegisters * tau(1 - histogram[kRanks] / kRegisters);
    for (int k = kRanks - 1; k >= 1; --k) z = 0.5 * (z + histogram[static_cast<size_t>(k)]);
    z += kRegisters * sigma(histogram[0] / kRegisters);
    constexpr double kAlpha = 0.7213475204444817;  // 1 / (2 ln 2)
    return kAlpha * kRegisters * kRegisters / z;
  }

 private:
  static constexpr int kRanks = 64 - kBits + 1;

  // Ertl's two series; each ends when a term changes nothing.
  static double sigma(double x) {
    if (x == 1) return HUGE_VAL;
    double y = 1, z = x, before = -1;
    while (z != before) {
      x *= x;
      before = z;
      z += x * y;
      y += y;
    }
    return z;
  }
  static double tau(double x) {
    if (x == 0 || x == 1) return 0;
    double y = 1, z = 1 - x, before = -1;
    while (z != before) {
      x = std::sqrt(x);
      before = z;
      y *= 0.5;
      z -= (1 - x) * (1 - x) * y;
    }
    return z / 3;
  }

  std::vector<uint8_t> registers_ = std::vector<uint8_t>(size_t{1} << kBits);
};

}  // namespace tessera::cli
