// Dot products of a few vectors with many, which is where a search spends its time.
#pragma once

#include <cstddef>

namespace tessera::retrieval {

inline constexpr size_t kBeside = 16;  // items that lie beside each other: value c of all of them, then value c + 1
inline constexpr size_t kQueries = 8;  // that go over the items together, in the same way

// `blocks` of kBeside items, one behind the other: items[blocks][dim][kBeside].
struct ItemBlocks {
  const float* items = nullptr;
  size_t blocks = 0, dim = 0;
};

struct SearchLoops {
  // out[q][i], rows `stride` apart: product of query q < count with item i. queries[dim][kQueries]; rows up to the next
  // of 1, 4 and kQueries are written. Each product is summed value by value in one chain, whatever is beside it and
  // however wide the vectors are.
  void (*products)(const float* queries, size_t count, const ItemBlocks& items, float* out, size_t stride);
  // The first i >= from with values[i] > bound; `count`, a multiple of kBeside as `from` need not be: there is none.
  size_t (*next_above)(const float* values, size_t from, size_t count, float bound);
};
SearchLoops best_search_loops();

}  // namespace tessera::retrieval
