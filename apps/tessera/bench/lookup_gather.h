// Reads whole rows at random places as fast as the machine can: nothing is pooled and nothing is written.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::cli {

// The farthest prefetch distance. `rows` below has this many extra entries at its end, each the address of a row.
inline constexpr int64_t kMaxGatherAhead = 256;

// Returns the sum of all values of rows[0..count), each of `dim` floats, summed by position in float32.
using GatherRows = double (*)(const float* const* rows, int64_t count, int64_t ahead, int64_t dim);

struct GatherWay {
  int ahead;         // prefetch distance: reading rows[i] prefetches rows[i + ahead]; 0: no prefetch
  const char* hint;  // x86's name of the hint, "t0", "t1" or "nta"; or "none"
  GatherRows run;
};

// All combinations of prefetch distance and hint, with the widest loads of this processor, for rows of `dim` floats.
std::vector<GatherWay> gather_ways(int64_t dim);

}  // namespace tessera::cli
