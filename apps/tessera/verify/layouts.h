// The layouts that a sharder proposes, copied and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/abi/sharder.h"
#include "verify/check.h"

namespace tessera::cli::verify {

struct OnePart {
  int32_t placement, combine, row_set;
  std::vector<tsr_rectangle> rectangles;
  bool operator==(const OnePart& o) const {
    return placement == o.placement && combine == o.combine && row_set == o.row_set &&
           std::equal(rectangles.begin(), rectangles.end(), o.rectangles.begin(), o.rectangles.end(),
                      [](const tsr_rectangle& a, const tsr_rectangle& b) {
                        return a.row == b.row && a.rows == b.rows && a.col == b.col && a.cols == b.cols;
                      });
  }
};
struct OneLayout {
  std::vector<OnePart> parts;
  uint32_t num_row_sets = 0;
  int64_t cookie = 0;
  bool operator==(const OneLayout&) const = default;
};

// A question to a sharder.
struct Question {
  std::string name = "t";
  int64_t rows, cols;
  uint32_t world, local;
  int32_t pooling = TSR_POOLING_SUM;
  int64_t min_partition = 0, max_shards = 0;
  int32_t device = kDLCPU;

  std::string text() const {
    std::string out = str_cat("table of ", rows, " rows x ", cols, " columns on ", world, " ranks");
    if (local != world) out += str_cat(", ", local, " a host");
    if (min_partition > 0) out += str_cat(", min_partition ", min_partition);
    if (max_shards > 0) out += str_cat(", max_shards ", max_shards);
    return out;
  }
};

// Throws Broken if the layout does not fit the question.
void check_layout(const OneLayout& layout, const Question& q, bool routes);

// The rows of each row set, over all ranks; empty if rows are ranges.
std::vector<int64_t> row_sets_of(const OneLayout& layout);

// Ids of a table that is too large to ask about each: the ends, numbers around powers of two, and random ones.
std::vector<int64_t> some_ids(int64_t rows, Random& random);

}  // namespace tessera::cli::verify
