// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/row_marks.h - which rows of a table have changed since a mark: a bit for each, once there is a
// mark. For kernels that know it (sdk/draft/changes.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

namespace tessera::sdk {

class RowMarks {
 public:
  explicit operator bool() const { return !words_.empty(); }  // there is a mark
  void start(int64_t rows) { words_.assign(static_cast<size_t>(rows / 64 + 1), 0); }
  uint64_t bytes() const { return words_.size() * sizeof(uint64_t); }

  void add(int64_t row) { add(&row, 1); }
  // By any number of threads at once. Most rows of a batch were marked by the ones before: those cost a read.
  template <class Id>
  void add(const Id* rows, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const std::atomic_ref<uint64_t> word(words_[static_cast<size_t>(rows[i]) / 64]);
      const uint64_t bit = uint64_t{1} << (static_cast<uint64_t>(rows[i]) % 64);
      if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  void add_all(int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) add(row);
  }

  int64_t count() const {
    int64_t out = 0;
    for (const uint64_t word : words_) out += std::popcount(word);
    return out;
  }
  // The first that is marked from `row` on; -1: none.
  int64_t next(int64_t row) const {
    auto at = static_cast<size_t>(row) / 64;
    if (at >= words_.size()) return -1;
    uint64_t word = words_[at] & ~uint64_t{0} << (static_cast<uint64_t>(row) % 64);
    while (word == 0) {
      if (++at == words_.size()) return -1;
      word = words_[at];
    }
    return static_cast<int64_t>(at) * 64 + std::countr_zero(word);
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace tessera::sdk
