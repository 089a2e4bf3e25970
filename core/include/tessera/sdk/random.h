// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/random.h - random numbers that are the same on every machine and with every standard library: SplitMix64
// (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014; constants of Stafford's variant 13).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera::sdk {

// 2^64 / golden ratio: the step between two states.
inline constexpr uint64_t kGoldenStep = 0x9e3779b97f4a7c15u;

// The finalizer: every input bit affects every output bit. Bits: uint64_t, or a vector of them.
template <typename Bits>
constexpr void mix(Bits& x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x = x ^ (x >> 31);
}

constexpr uint64_t mixed(uint64_t x) {
  mix(x);
  return x;
}

class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}
  constexpr uint64_t bits() { return mixed(state_ += kGoldenStep); }
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Uniform in [0, n): the high half of a 128-bit product. The bias is below n / 2^64.
  uint64_t below(uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(bits()) * n) >> 64);
  }
  // Standard normal, by Box-Muller; the second number of each pair is not used.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint64_t state_;
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

}  // namespace tessera::sdk
