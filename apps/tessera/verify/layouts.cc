#include "verify/layouts.h"

#include <algorithm>
#include <set>

#include "wiring/tiling.h"

namespace tessera::cli::verify {
namespace {

std::string why_misplaced(const OnePart& part, const Question& q) {
  const size_t n = part.rectangles.size();
  switch (part.placement) {
    case TSR_PLACE_ANY_RANK:
    case TSR_PLACE_IN_HOST:
      return "";
    case TSR_PLACE_ONE_HOST:
      return n <= q.local ? ""
                          : str_cat("TSR_PLACE_ONE_HOST with ", n, " rectangles for the ", q.local, " ranks of a host");
    case TSR_PLACE_EVERY_RANK:
      return n == q.world ? "" : str_cat("TSR_PLACE_EVERY_RANK with ", n, " rectangles for ", q.world, " ranks");
    case TSR_PLACE_HOSTS:
      return n % q.local == 0
                 ? ""
                 : str_cat("TSR_PLACE_HOSTS with ", n, " rectangles, which fill no hosts of ", q.local, " ranks");
    default:
      return str_cat("placement ", part.placement, " does not exist");
  }
}

bool equal(const tsr_rectangle& a, const tsr_rectangle& b) {
  return a.row == b.row && a.rows == b.rows && a.col == b.col && a.cols == b.cols;
}

std::string why_not_combined(const OnePart& part, const Question& q) {
  if (part.combine < TSR_COMBINE_CONCAT || part.combine > TSR_COMBINE_REPLICA)
    return str_cat("combine ", part.combine, " does not exist");
  for (const tsr_rectangle& r : part.rectangles) {
    if (part.combine == TSR_COMBINE_REPLICA && !equal(r, part.rectangles.front()))
      return str_cat(text_of(r), " is not a copy of ", text_of(part.rectangles.front()), ", but the part is a REPLICA");
    if (part.combine == TSR_COMBINE_CONCAT && part.row_set == TSR_ROWS_RANGE && r.rows != q.rows)
      return str_cat(text_of(r), " lacks rows, but TSR_COMBINE_CONCAT puts columns side by side");
  }
  return "";
}

// The reason why the rectangles do not cover the table; of copies, only one is considered.
std::string why_not_covering(const OneLayout& layout, const Question& q) {
  std::vector<tsr_rectangle> all;
  for (const OnePart& part : layout.parts) {
    const size_t count = part.combine == TSR_COMBINE_REPLICA ? 1 : part.rectangles.size();
    all.insert(all.end(), part.rectangles.begin(), part.rectangles.begin() + static_cast<std::ptrdiff_t>(count));
  }
  const bool routed = layout.parts.front().row_set == TSR_ROWS_ROUTED;
  return routed ? why_not_tiling_routed(all, q.rows, q.cols) : why_not_tiling(all, q.rows, q.cols);
}

}  // namespace

void check_layout(const OneLayout& layout, const Question& q, bool routes) {
  const int32_t row_set = layout.parts.front().row_set;
  for (const OnePart& part : layout.parts) {
    if (part.row_set != TSR_ROWS_RANGE && part.row_set != TSR_ROWS_ROUTED)
      broken(q.text(), ": row set ", part.row_set, " does not exist");
    require(part.row_set == row_set, q.text(), ": rows of one part are routed, and of another ranges");
    require(part.row_set != TSR_ROWS_ROUTED || routes, q.text(), ": rows are routed, but route is NULL");
    if (const std::string why = why_misplaced(part, q); !why.empty()) broken(q.text(), ": ", why);
    if (const std::string why = why_not_combined(part, q); !why.empty()) broken(q.text(), ": ", why);
  }
  if (const std::string why = why_not_covering(layout, q); !why.empty()) broken(q.text(), ": ", why);
  const size_t row_sets = row_sets_of(layout).size();
  require(layout.num_row_sets == row_sets, q.text(), ": num_row_sets is ", layout.num_row_sets, ", but there are ",
          row_sets);
}

std::vector<int64_t> row_sets_of(const OneLayout& layout) {
  std::vector<int64_t> out;
  for (const OnePart& part : layout.parts) {
    if (part.row_set != TSR_ROWS_ROUTED) return {};
    for (const tsr_rectangle& r : part.rectangles) {
      if (part.combine == TSR_COMBINE_REPLICA && &r != &part.rectangles.front()) continue;
      if (r.col == part.rectangles.front().col) out.push_back(r.rows);
    }
  }
  return out;
}

std::vector<int64_t> some_ids(int64_t rows, Random& random) {
  std::set<int64_t> ids;
  const auto add = [&](int64_t id) {
    if (id >= 0 && id < rows) ids.insert(id);
  };
  for (int64_t power = 1; power > 0 && power / 2 < rows; power *= 2) {
    for (int64_t off = -2; off <= 2; ++off) add(power + off);
  }
  for (int64_t i = 0; i < 20; ++i) {
    add(i);
    add(rows - 1 - i);
  }
  for (int i = 0; i < 50000; ++i) add(between(random, 0, rows - 1));
  return {ids.begin(), ids.end()};
}

}  // namespace tessera::cli::verify
