// Copies of short runs: a sample's ids in one column.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tessera::data {

// From how many values a run on, on average, copy_run() is faster than a loop over them.
constexpr int64_t kRunsFrom = 4;

// Four values in registers: an array of what lies between goes over the stack.
template <class From, class To>
inline void copy_four(const From* from, To* to) {
  using Read [[gnu::vector_size(4 * sizeof(From))]] = From;
  using Written [[gnu::vector_size(4 * sizeof(To))]] = To;
  Read values;
  std::memcpy(&values, from, sizeof(values));
  const Written out = __builtin_convertvector(values, Written);
  std::memcpy(to, &out, sizeof(out));
}

// Copies n values. How many they are cannot be foretold, so a loop over them waits for its last round: where there is
// room, whole steps are copied instead. What lies behind the n values, up to `to_end`, is then written, too, so runs
// have to come in the order of their places. `from_end`: of what may be read.
template <class From, class To>
inline void copy_run(const From* from, const From* from_end, int64_t n, To* to, const To* to_end) {
  constexpr int64_t kStep = 16;
  // One step always: of runs that are shorter, and of empty ones, no branch depends on their length.
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
