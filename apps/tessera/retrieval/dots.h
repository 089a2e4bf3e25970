// Dot products of a few vectors with many, which is where a search spends its time.
#pragma once

#include <array>
#include <cstddef>

namespace tessera::retrieval {

inline constexpr size_t kQueries = 4;   // that go over the items together
inline constexpr size_t kPadding = 16;  // vectors have a multiple of so many values; the last ones may be zeros

// out[q][i] = queries[q] . items[i], for `count` items, `dim` values apart. Each product is summed in the same order
// whatever is beside it.
using Dots = void (*)(const std::array<const float*, kQueries>& queries, const float* items, size_t count, size_t dim,
                      const std::array<float*, kQueries>& out);
Dots best_dots();

}  // namespace tessera::retrieval
