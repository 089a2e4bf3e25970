#include "wiring/tiling.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "tessera/error.h"

namespace tessera {

namespace {

__extension__ using Wide = __int128;

std::string outside(const tsr_rectangle& r, int64_t rows, int64_t cols) {
  const bool inside = r.row >= 0 && r.rows >= 0 && r.rows <= rows && r.row <= rows - r.rows && r.col >= 0 &&
                      r.cols > 0 && r.cols <= cols && r.col <= cols - r.cols;
  return inside ? "" : str_cat(text_of(r), " is not inside the table of ", rows, " x ", cols);
}

struct Edge {
  int64_t row;
  bool opens;  // false sorts first: a rectangle ends before its neighbour below begins
  size_t index;
  bool operator<(const Edge& other) const {
    return row != other.row ? row < other.row : opens != other.opens ? opens < other.opens : index < other.index;
  }
};

// Sweeps over the rows, with the open rectangles ordered by column. Returns the first overlapping pair, if there is
// one.
std::optional<std::pair<size_t, size_t>> overlap(std::span<const tsr_rectangle> rectangles) {
  std::vector<Edge> edges;
  edges.reserve(2 * rectangles.size());
  for (size_t i = 0; i < rectangles.size(); ++i) {
    const tsr_rectangle& r = rectangles[i];
    if (r.rows == 0) continue;
    edges.push_back({r.row, true, i});
    edges.push_back({r.row + r.rows, false, i});
  }
  std::sort(edges.begin(), edges.end());
  std::map<int64_t, size_t> open;  // by first column
  for (const Edge& e : edges) {
    const tsr_rectangle& r = rectangles[e.index];
    if (!e.opens) {
      open.erase(r.col);
      continue;
    }
    const auto next = open.lower_bound(r.col);
    if (next != open.end() && next->first < r.col + r.cols) return std::pair(next->second, e.index);
    if (next != open.begin()) {
      const tsr_rectangle& left = rectangles[std::prev(next)->second];
      if (left.col + left.cols > r.col) return std::pair(std::prev(next)->second, e.index);
    }
    open.emplace_hint(next, r.col, e.index);
  }
  return std::nullopt;
}

}  // namespace

std::string text_of(const tsr_rectangle& r) {
  // Adds in uint64, because a plugin's numbers may be nonsense, and the addition must not overflow.
  const auto end = [](int64_t begin, int64_t n) {
    return static_cast<int64_t>(static_cast<uint64_t>(begin) + static_cast<uint64_t>(n));
  };
  return str_cat("rows [", r.row, ", ", end(r.row, r.rows), ") x columns [", r.col, ", ", end(r.col, r.cols), ")");
}

std::string why_not_tiling(std::span<const tsr_rectangle> rectangles, int64_t rows, int64_t cols) {
  Wide area = 0;
  for (const tsr_rectangle& r : rectangles) {
    if (std::string text = outside(r, rows, cols); !text.empty()) return text;
    area += static_cast<Wide>(r.rows) * r.cols;
  }
  if (const auto pair = overlap(rectangles)) {
    return str_cat(text_of(rectangles[pair->first]), " and ", text_of(rectangles[pair->second]), " overlap");
  }
  const Wide missing = static_cast<Wide>(rows) * cols - area;
  if (missing != 0) {
    return str_cat("the rectangles leave ", static_cast<int64_t>(std::min<Wide>(missing, INT64_MAX)),
                   " of the table's ", rows, " x ", cols, " cells uncovered");
  }
  return "";
}

std::string why_not_tiling_routed(std::span<const tsr_rectangle> rectangles, int64_t rows, int64_t cols) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> rows_of;  // (first column, columns) -> row sets
  for (const tsr_rectangle& r : rectangles) {
    if (std::string text = outside(r, rows, cols); !text.empty()) return text;
    if (r.row != 0) return str_cat(text_of(r), " should start at row 0, because its rows are routed");
    if (r.cols < cols) rows_of[{r.col, r.cols}];
  }
  if (rows_of.empty()) rows_of[{0, cols}];
  for (const tsr_rectangle& r : rectangles) {  // a rectangle with all columns is in every block
    for (auto& [columns, row_sets] : rows_of) {
      if (r.cols == cols || columns == std::pair(r.col, r.cols)) row_sets.push_back(r.rows);
    }
  }
  int64_t next = 0;
  for (const auto& [columns, row_sets] : rows_of) {
    if (columns.first != next) return str_cat("the rectangles do not tile the columns at column ", next);
    next += columns.second;
    const Wide count = std::accumulate(row_sets.begin(), row_sets.end(), Wide{0});
    if (count != rows) {
      return str_cat("the rectangles of columns [", columns.first, ", ", next, ") hold ",
                     static_cast<int64_t>(std::min<Wide>(count, INT64_MAX)), " rows together instead of ", rows);
    }
    if (row_sets != rows_of.begin()->second)
      return str_cat("the rectangles of columns [", columns.first, ", ", next,
                     ") hold other row sets than those of the first columns");
  }
  return next == cols ? "" : str_cat("the rectangles do not tile the columns at column ", next);
}

}  // namespace tessera
