// Reads of whole rows at random places, as fast as a machine can: nothing is pooled and nothing is written.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::cli {

// The farthest prefetch; `rows` below has so many more entries than are read, and each is the address of a row.
inline constexpr int64_t kMaxGatherAhead = 256;

// The sum of all values of rows[0..count), each of `dim` floats, summed by position in float32.
using GatherRows = double (*)(const float* const* rows, int64_t count, int64_t ahead, int64_t dim);

struct GatherWay {
  int ahead;         // rows[i + ahead] is prefetched when rows[i] is read; 0: none is
  const char* hint;  // "t0", "t1", "nta": as x86 names them; "none"
  GatherRows run;
};

// Every prefetch distance and hint, with the widest loads of this processor, for rows of `dim` floats.
std::vector<GatherWay> gather_ways(int64_t dim);

}  // namespace tessera::cli
