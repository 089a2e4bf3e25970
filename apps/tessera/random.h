// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
// number generators", 2014; constants of Stafford's variant 13).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera::cli {

// Every bit of `x` affects every bit of the result.
constexpr uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() { return mixed(state_ += 0x9e3779b97f4a7c15u); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // in [0, 1)
  // Uniform in [0, n): the high half of a 128-bit product.
  uint64_t below(uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(bits()) * n) >> 64);
  }

 private:
  uint64_t state_;
};

// The numbers below n, shuffled by the seed.
inline std::vector<uint32_t> shuffled(size_t n, uint64_t seed) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  Random random(seed);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace tessera::cli
