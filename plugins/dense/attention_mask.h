// The mask of an attention: the rows of a sample that each of its rows sees.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera_dense {

struct AttentionMask {
  bool causal = true;
  int64_t window = -1;     // a row sees at most this many rows back (and forward, if not causal); -1: all
  int64_t contextual = 0;  // number of leading rows that see each other and the history
  int64_t full = 0;        // the window does not limit the targets and this many rows before them; 0: it limits all
};

// The visible rows of one sample of `rows` rows. The last `targets` rows are candidates, which see the history and
// themselves. The contextual rows share one position, and so do the targets.
class Visible {
 public:
  Visible(const AttentionMask& mask, int64_t rows, int64_t targets)
      : mask_(mask), rows_(rows), front_(std::max<int64_t>(mask.contextual - 1, 0)), top_(rows - front_ - targets) {}

  // Row i sees [first, last) and itself.
  struct Range {
    int64_t first, last;
  };
  Range of(int64_t i) const {
    if (!mask_.causal) {
      if (mask_.window < 0) return {0, rows_};
      return {std::max<int64_t>(0, i - mask_.window), std::min(rows_, i + mask_.window + 1)};
    }
    const int64_t at = position(i);
    if (mask_.contextual > 0 && at == 0) return joined(i, {0, first_at(top_)});
    const bool limited = mask_.window >= 0 && !(mask_.full > 0 && at >= top_ - mask_.full);
    return joined(i, {limited ? first_at(at - mask_.window) : 0, first_at(at)});
  }

 private:
  int64_t position(int64_t i) const { return std::min(std::max<int64_t>(i - front_, 0), top_); }
  // The first row whose position is at least `at`.
  int64_t first_at(int64_t at) const {
    if (at <= std::min<int64_t>(0, top_)) return 0;
    return at > top_ ? rows_ : std::min(rows_, at + front_);
  }
  // Adds the row itself to a range that ends before it.
  static Range joined(int64_t i, Range range) {
    if (range.first >= range.last) return {i, i + 1};
    return range.last == i ? Range{range.first, i + 1} : range;
  }

  AttentionMask mask_;
  int64_t rows_, front_, top_;
};

}  // namespace tessera_dense
