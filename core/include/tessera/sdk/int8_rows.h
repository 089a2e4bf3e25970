// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/int8_rows.h - rounds rows of weights to 8 bits, with one scale for each row (TSR_PARAMETER_INT8_ROWS).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera::sdk {
inline namespace v1 {

inline constexpr float kInt8Levels = 127;
// A row whose largest value is smaller than this becomes zeros with a scale of 0.
inline constexpr float kLeastInt8Row = 1e-30f;

// Rounds n finite values to integers in [-127, 127], ties to even, and returns the scale: value i is near to[i] *
// scale. Rounding those products again gives the same integers.
inline float round_to_int8(const float* from, int64_t n, int8_t* to) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(from[i]));
  const bool zeros = most < kLeastInt8Row;
  const float levels = zeros ? 0 : kInt8Levels / most;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int8_t>(std::nearbyint(from[i] * levels));
  return zeros ? 0 : most / kInt8Levels;
}

}  // namespace v1
}  // namespace tessera::sdk
