// Tells which rows of the data-parallel tables a step uses: on this rank, and on any rank.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "tessera/process_group.h"

namespace tessera {

// It has a bit for each row, and ranks send these bits to each other: tables are large, and a step uses few rows.
class TouchedRows {
 public:
  explicit TouchedRows(const std::vector<int64_t>& rows);  // by table

  void clear();
  // Marks a row of a table as used on this rank. After share(), call clear() before the next mark().
  void mark(size_t table, int64_t row) {
    mine_[static_cast<size_t>(begin_[table] + row / kBits)] |= uint64_t{1} << (row % kBits);
  }
  // Tells all ranks' rows to all ranks. `place`: CallSite::place. Collective.
  void share(const ProcessGroup& group, uint64_t place);

  int64_t count(size_t table) const;  // number of rows that any rank used
  // Calls f(row, true if this rank used it) for each used row, ascending.
  template <class F>
  void for_each(size_t table, const F& f) const {
    for (int64_t w = begin_[table]; w < begin_[table + 1]; ++w) {
      const uint64_t mine = mine_[static_cast<size_t>(w)];
      for (uint64_t left = any()[w]; left != 0; left &= left - 1) {
        const int bit = std::countr_zero(left);
        f((w - begin_[table]) * kBits + bit, (mine >> bit & 1) != 0);
      }
    }
  }

 private:
  static constexpr int64_t kBits = 64;
  const uint64_t* any() const { return any_.empty() ? mine_.data() : any_.data(); }

  std::vector<int64_t> begin_;  // by table, in words, with one more entry at the end
  std::vector<uint64_t> mine_;
  std::vector<uint64_t> any_, all_;  // all_: the bits of every rank; both are empty if there is only one rank
  std::vector<int64_t> counts_;      // scratch
};

}  // namespace tessera
