// Which rows of a table have changed since a mark: a bit for each, and the id that it had then.
#pragma once

#include <cstdint>
#include <vector>

namespace flagships {

class ChangedRows {
 public:
  static constexpr int64_t kNoId = -1;  // of a row that had none

  explicit operator bool() const { return marked_; }
  // ids: of the rows that there are now, by row; kNoId where none has it. Behind them may be those of others.
  void start(std::vector<int64_t> ids) {
    marked_ = true;
    bits_.assign(ids.size() / 64 + 1, 0);
    ids_ = std::move(ids);
  }
  void add(uint32_t row) {
    if (!marked_) return;
    if (row / 64 >= bits_.size()) bits_.resize(2 * size_t{row} / 64 + 1);
    bits_[row / 64] |= uint64_t{1} << row % 64;
  }
  bool has(uint32_t row) const { return row / 64 < bits_.size() && (bits_[row / 64] >> row % 64 & 1) != 0; }
  const std::vector<int64_t>& ids() const { return ids_; }
  uint64_t bytes() const { return bits_.size() * sizeof(uint64_t) + ids_.size() * sizeof(int64_t); }

 private:
  bool marked_ = false;
  std::vector<uint64_t> bits_;
  std::vector<int64_t> ids_;
};

}  // namespace flagships
