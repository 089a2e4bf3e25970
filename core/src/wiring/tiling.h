// Checks that rectangles tile a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/abi/sharder.h"

namespace tessera {

// Returns a sentence about what is wrong; empty: the rectangles cover every cell of rows x cols once. Rectangles
// without rows are allowed.
std::string why_not_tiling(std::span<const tsr_rectangle> rectangles, int64_t rows, int64_t cols);

// Does the same for TSR_ROWS_ROUTED, where rectangles begin at row 0 and only their number of rows counts. Rectangles
// of equal columns form a column block. Column blocks must tile the width, must all have the same row sets, and the
// rows of the sets must add up to the table's.
std::string why_not_tiling_routed(std::span<const tsr_rectangle> rectangles, int64_t rows, int64_t cols);

// "rows [0, 10) x columns [0, 64)"
std::string text_of(const tsr_rectangle& rectangle);

}  // namespace tessera
