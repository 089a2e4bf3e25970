// Ways to divide tables that several strategies share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/sdk/sharder.h"

namespace tessera::strategies {

// The width of column shards of a table with `cols` columns: the smallest divisor of cols that is a multiple of 4, at
// least `min_partition` (128 if that is 0), and gives at most max_pieces shards (0: any number). Returns cols if there
// is none; the table is then not divided.
inline int64_t column_width(int64_t cols, int64_t min_partition, int64_t max_pieces) {
  constexpr int64_t kLeastWidth = 128;
  int64_t lower = min_partition > 0 ? min_partition : kLeastWidth;
  if (max_pieces > 0) lower = std::max(lower, cols / max_pieces + (cols % max_pieces != 0));
  for (int64_t width = (lower - 1) / 4 * 4 + 4; width < cols; width += 4) {
    if (cols % width == 0) return width;
  }
  return cols;
}

// Divides the columns from left to right; each rectangle has all rows.
inline std::vector<sdk::Rectangle> cut_columns(const sdk::Table& table, const sdk::Constraints& constraints) {
  const int64_t width = column_width(table.cols, constraints.min_partition, constraints.max_shards);
  std::vector<sdk::Rectangle> pieces;
  for (int64_t col = 0; col < table.cols; col += width) pieces.push_back({0, table.rows, col, width});
  return pieces;
}

// Divides the rows of columns [col, col + cols) into blocks of equal height. The last blocks may be shorter or empty.
inline void cut_rows(const sdk::Table& table, int64_t blocks, int64_t col, int64_t cols,
                     std::vector<sdk::Rectangle>& pieces) {
  for (const sdk::Range& block : sdk::cut_blocks(table.rows, blocks)) {
    pieces.push_back({block.start, block.count, col, cols});
  }
}

// True if `count` exceeds the limit on the number of shards.
inline bool too_many(int64_t count, const sdk::Constraints& constraints) {
  return constraints.max_shards > 0 && count > constraints.max_shards;
}

}  // namespace tessera::strategies
