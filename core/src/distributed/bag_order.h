// Which bags of a stream have ids, as a list: rows on the wire are walked without a branch per bag.
#pragma once

#include <cstdint>

namespace tessera {

// Writes the bags with ids, ascending, and behind them the others, descending. Returns the number of the first.
inline int64_t order_bags(const int32_t* lengths, int64_t bags, int32_t* order) {
  int64_t full = 0;
  for (int64_t b = 0; b < bags; ++b) {
    order[full] = static_cast<int32_t>(b);
    order[bags - 1 - (b - full)] = static_cast<int32_t>(b);
    full += lengths[b] > 0;
  }
  return full;
}

}  // namespace tessera
