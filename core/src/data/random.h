// Random numbers that are the same on every machine and with every standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "config/splitmix64.h"

namespace tessera::data {

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint64_t bits() { return random_.bits(); }
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Uniform in [0, n): the high half of a 128-bit product. The bias is below n / 2^64.
  uint64_t below(uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(bits()) * n) >> 64);
  }
  // Standard normal (Box-Muller, one of the two).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  SplitMix64 random_;
};

// Combines several numbers into one seed.
inline uint64_t combine(uint64_t a, uint64_t b) { return Random(Random(a).bits() ^ (b * 0xff51afd7ed558ccdu)).bits(); }

// Returns the numbers below n, shuffled by the seed.
inline std::vector<uint32_t> shuffled(size_t n, uint64_t seed) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  Random random(seed);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace tessera::data
