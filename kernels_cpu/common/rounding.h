// Stochastic rounding of updated rows to 16 bits: up or down at random, so that the expected result is the value. The
// random bits depend on the table, on row and column of the whole table, and on the step.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace tessera_cpu {

struct Rounding {
  bool stochastic = false;
  uint64_t key = 0;                      // depends on the job's seed and the table
  int64_t first_row = 0, first_col = 0;  // the shard's place in the whole table
};

// `random` is below 2^16. Values that bfloat16 can represent stay, as do infinities and NaN.
inline uint16_t bfloat16_at_random(float value, uint32_t random) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & kExponent) == kExponent) return float_to_bfloat16(value);
  const uint32_t up = bits + random;
  return static_cast<uint16_t>(((up & kExponent) == kExponent ? bits : up) >> 16);
}

inline uint16_t half_at_random(float value, uint32_t random) {
  constexpr float kLargest = 65504, kSmallestNormal = 0x1p-14f;
  const float size = std::fabs(value);
  if (!(size < kLargest)) return float_to_half(value);
  if (size < kSmallestNormal) {  // subnormal halves are equally far apart
    const double steps = std::floor(size * 0x1p24 + random * 0x1p-16);
    return float_to_half(std::copysign(static_cast<float>(steps * 0x1p-24), value));
  }
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + (random >> 3)) & ~uint32_t{0x1FFF};  // a half has 13 bits less
  std::memcpy(&value, &bits, sizeof(bits));
  return float_to_half(value);
}

// Stores a row of the shard after its update in this step.
inline void store_at_random(const Rounding& rounding, bool bfloat16, int64_t row, int64_t step, const float* values,
                            int64_t dim, uint16_t* out) {
  // kOwn makes the random bits differ from those of start values.
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15, kOwn = 0x5bd1e9955bd1e995;
  const auto mix = [](uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  };
  const auto times = [](int64_t n) { return kGolden * (static_cast<uint64_t>(n) + 1); };
  const uint64_t of_row = mix(mix((rounding.key ^ kOwn) + times(rounding.first_row + row)) + times(step));
  uint64_t four = 0;  // 16 bits for each of four columns
  for (int64_t i = 0; i < dim; ++i) {
    const int64_t column = rounding.first_col + i;
    if (i == 0 || column % 4 == 0) four = mix(of_row + times(column / 4));
    const auto random = static_cast<uint32_t>(four >> 16 * (column % 4) & 0xFFFF);
    out[i] = bfloat16 ? bfloat16_at_random(values[i], random) : half_at_random(values[i], random);
  }
}

}  // namespace tessera_cpu
