// SplitMix64: random numbers that are the same on every machine and with every standard library (Steele, Lea, Flood:
// "Fast splittable pseudorandom number generators", 2014; constants of Stafford's variant 13).
#pragma once

#include <cstdint>

namespace tessera {

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

class SplitMix64 {
 public:
  explicit constexpr SplitMix64(uint64_t seed) : state_(seed) {}
  constexpr uint64_t bits() { return mixed(state_ += kGoldenStep); }

 private:
  uint64_t state_;
};

}  // namespace tessera
