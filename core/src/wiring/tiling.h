// Do rectangles tile a table?
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/abi/sharder.h"

namespace tessera {

// Empty when the rectangles cover every cell of rows x cols once; otherwise a sentence about what is wrong. Rectangles
// without rows are allowed.
std::string why_not_tiling(std::span<const tsr_rectangle> rectangles, int64_t rows, int64_t cols);

// The same for TSR_ROWS_ROUTED, where `rows` only counts: pieces with equal columns are the row sets, which add up to
// all rows and are the same in each of these column blocks, and the blocks tile the width.
std::string why_not_tiling_routed(std::span<const tsr_rectangle> rectangles, int64_t rows, int64_t cols);

// "rows [0, 10) x columns [0, 64)"
std::string text_of(const tsr_rectangle& rectangle);

}  // namespace tessera
