// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/row_marks.h - tracks the rows of a table that have changed since its followers' marks, for kernels
// with sdk/draft/changes.h.
//
// A changed row sets one bit in the set since the newest mark, whichever follower set it. A new mark hands that set on
// to the other followers. So each follower has at most one bit per row since its own mark, and none before its first
// mark.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include "tessera/sdk/draft/changes.h"

namespace tessera::sdk {
inline namespace v1 {

class RowMarks {
 public:
  explicit operator bool() const { return !newest_.empty(); }  // there is a mark
  // Sets this follower's mark; its changes start anew.
  void start(uint32_t follower, int64_t rows) {
    for (uint32_t other = 0; other < kFollowers; ++other) {
      if (other != follower && (followed_ >> other & 1) != 0) add_newest(older_[other]);
    }
    followed_ |= 1u << follower;
    older_[follower] = {};
    newest_.assign(static_cast<size_t>(rows / 64 + 1), 0);
  }
  uint64_t bytes() const {
    uint64_t out = newest_.size() * sizeof(uint64_t);
    for (const Words& words : older_) out += words.size() * sizeof(uint64_t);
    return out;
  }

  void add(int64_t row) { add(&row, 1); }
  // May be called by many threads at once. Most rows of a batch are already marked and only cost a read.
  template <class Id>
  void add(const Id* rows, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const std::atomic_ref<uint64_t> word(newest_[static_cast<size_t>(rows[i]) / 64]);
      const uint64_t bit = bit_of(rows[i]);
      if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  void add_all(int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) add(row);
  }
  // Called by one thread at a time, for a table that may have got rows since the mark.
  void add_alone(int64_t row) {
    const auto at = static_cast<size_t>(row) / 64;
    if (at >= newest_.size()) newest_.resize(2 * at + 1);
    newest_[at] |= bit_of(row);
  }

  // Since the follower's mark: has() tells if a row is marked. The others return the number of marked rows, and the
  // first from `row` on; -1: none.
  bool has(uint32_t follower, int64_t row) const {
    return (word(follower, static_cast<size_t>(row) / 64) & bit_of(row)) != 0;
  }
  int64_t count(uint32_t follower) const {
    int64_t out = 0;
    for (size_t at = 0; at < words(follower); ++at) out += std::popcount(word(follower, at));
    return out;
  }
  int64_t next(uint32_t follower, int64_t row) const {
    auto at = static_cast<size_t>(row) / 64;
    uint64_t here = word(follower, at) & ~uint64_t{0} << (static_cast<uint64_t>(row) % 64);
    for (const size_t end = words(follower); here == 0; here = word(follower, at)) {
      if (++at >= end) return -1;
    }
    return static_cast<int64_t>(at) * 64 + std::countr_zero(here);
  }

 private:
  using Words = std::vector<uint64_t>;
  template <class Id>
  static uint64_t bit_of(Id row) {
    return uint64_t{1} << (static_cast<uint64_t>(row) % 64);
  }
  void add_newest(Words& words) const {
    words.resize(std::max(words.size(), newest_.size()));
    for (size_t i = 0; i < newest_.size(); ++i) words[i] |= newest_[i];
  }
  size_t words(uint32_t follower) const { return std::max(newest_.size(), older_[follower].size()); }
  uint64_t word(uint32_t follower, size_t at) const {
    const Words& older = older_[follower];
    return (at < newest_.size() ? newest_[at] : 0) | (at < older.size() ? older[at] : 0);
  }

  Words newest_;                           // since the newest mark of any follower
  std::array<Words, kFollowers> older_{};  // between a follower's mark and the newest one
  uint32_t followed_ = 0;                  // bit 1 << follower: it has a mark
};

}  // namespace v1
}  // namespace tessera::sdk
