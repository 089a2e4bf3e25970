// Copies short runs: a sample's ids in one column.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tessera::data {

// Average run length from which copy_run() is faster than a simple loop.
constexpr int64_t kRunsFrom = 4;

// Copies four values in registers; a temporary array would go through the stack.
template <class From, class To>
inline void copy_four(const From* from, To* to) {
  using Read [[gnu::vector_size(4 * sizeof(From))]] = From;
  using Written [[gnu::vector_size(4 * sizeof(To))]] = To;
  Read values;
  std::memcpy(&values, from, sizeof(values));
  const Written out = __builtin_convertvector(values, Written);
  std::memcpy(to, &out, sizeof(out));
}

// Copies n values. Short lengths are hard to predict, so a simple loop mispredicts its last iteration. If memory
// allows, it copies whole steps instead. That also writes past the n values, up to `to_end`, so runs must be copied in
// ascending order. `from_end`: the end of readable memory.
template <class From, class To>
inline void copy_run(const From* from, const From* from_end, int64_t n, To* to, const To* to_end) {
  constexpr int64_t kStep = 16;
  // It always copies one step, so that short and empty runs need no branch on their length.
  const int64_t room = std::min<int64_t>(from_end - from, to_end - to);
  if (std::max(n + kStep - 1, kStep) <= room) {
    int64_t left = n;
    do {
      for (int64_t j = 0; j < kStep; j += 4) copy_four(from + j, to + j);
      from += kStep, to += kStep, left -= kStep;
    } while (left > 0);
  } else {
    for (int64_t j = 0; j < n; ++j) to[j] = static_cast<To>(from[j]);
  }
}

}  // namespace tessera::data
