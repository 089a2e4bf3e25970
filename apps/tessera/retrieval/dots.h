// Dot products of a few vectors with many. A search spends most of its time here.
#pragma once

#include <cstddef>

namespace tessera::retrieval {

inline constexpr size_t kBeside = 16;  // interleaved items: value c of all of them, then value c + 1
inline constexpr size_t kQueries = 8;  // queries per pass over the items, interleaved in the same way

// `blocks` consecutive blocks of kBeside items: items[blocks][dim][kBeside].
struct ItemBlocks {
  const float* items = nullptr;
  size_t blocks = 0, dim = 0;
};

struct SearchLoops {
  // out[q][i], rows `stride` apart, is the product of query q < count with item i. queries is [dim][kQueries]. `count`
  // is rounded up to 1, 4 or kQueries, and that many rows are written. Each product is summed value by value in one
  // chain, so its bits do not depend on the other items or on the width of the vectors.
  void (*products)(const float* queries, size_t count, const ItemBlocks& items, float* out, size_t stride);
  // The first i >= from with values[i] > bound, or `count` if there is none. `count` is a multiple of kBeside; `from`
  // need not be.
  size_t (*next_above)(const float* values, size_t from, size_t count, float bound);
};
SearchLoops best_search_loops();

}  // namespace tessera::retrieval
