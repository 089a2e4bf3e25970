// Lists the bags of an id route that have ids. Rows on the wire are walked along this list, without a branch per bag.
#pragma once

#include <cstdint>

namespace tessera {

struct BagCounts {
  int64_t full = 0;  // bags with ids
  int64_t ids = 0;
};

// Writes the bags with ids to `order`, ascending. `order` has room for all bags; its entries after the result have no
// meaning. No length is negative.
inline BagCounts order_bags(const int32_t* lengths, int64_t bags, int32_t* order) {
  BagCounts n;
  for (int64_t b = 0; b < bags; ++b) {
    order[n.full] = static_cast<int32_t>(b);
    n.full += lengths[b] != 0;
    n.ids += lengths[b];
  }
  return n;
}

}  // namespace tessera
