// Finds the first value that is not a finite number.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace tessera {

// Returns the index of the first infinity or NaN; -1: there is none. If all values are finite, it is one pass without
// branches.
inline int64_t first_not_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;  // infinities and NaNs have all these bits
  const auto broken = [](float value) { return (std::bit_cast<uint32_t>(value) & kExponent) == kExponent; };
  uint32_t any = 0;
  for (const float value : values) any |= static_cast<uint32_t>(broken(value));
  for (size_t i = 0; any && i < values.size(); ++i) {
    if (broken(values[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace tessera
