// Which rows of the data-parallel tables a step touches: on this rank, and on any.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "tessera/process_group.h"

namespace tessera {

// A bit per row, which is what ranks tell each other: tables are large, and a step has few of their rows.
class TouchedRows {
 public:
  explicit TouchedRows(const std::vector<int64_t>& rows);  // of each table

  void clear();
  // `row` of a table, on this rank. Again after share(): clear() first.
  void mark(size_t table, int64_t row) {
    mine_[static_cast<size_t>(begin_[table] + row / kBits)] |= uint64_t{1} << (row % kBits);
  }
  // Collective: from here on the rows of all ranks are known. `place`: CallSite::place.
  void share(const ProcessGroup& group, uint64_t place);

  int64_t count(size_t table) const;  // rows that any rank had
  // f(row, whether this rank had it), ascending.
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

  std::vector<int64_t> begin_;  // by table, in words; one more
  std::vector<uint64_t> mine_;
  std::vector<uint64_t> any_, all_;  // all_: of every rank. Empty where there is one.
  std::vector<int64_t> counts_;      // scratch
};

}  // namespace tessera
