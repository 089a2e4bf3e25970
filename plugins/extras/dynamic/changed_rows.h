// Remembers which rows of a table have changed since each follower's mark: a bit per row, and the id that the row had
// at the mark.
#pragma once

#include <tessera/sdk/draft/row_marks.h>

#include <array>
#include <cstdint>
#include <vector>

namespace extras {

class ChangedRows {
 public:
  static constexpr int64_t kNoId = -1;  // a row that had no id

  explicit operator bool() const { return static_cast<bool>(marks_); }
  // `ids` has the id of each existing row, kNoId if a row has none. Rows may be added later.
  void start(uint32_t follower, std::vector<int64_t> ids) {
    marks_.start(follower, std::ssize(ids));
    ids_[follower] = std::move(ids);
  }
  void add(uint32_t row) {
    if (marks_) marks_.add_alone(row);
  }
  bool has(uint32_t follower, uint32_t row) const { return marks_.has(follower, row); }
  const std::vector<int64_t>& ids(uint32_t follower) const { return ids_[follower]; }
  uint64_t bytes() const {
    uint64_t out = marks_.bytes();
    for (const std::vector<int64_t>& ids : ids_) out += ids.size() * sizeof(int64_t);
    return out;
  }

 private:
  tessera::sdk::RowMarks marks_;
  std::array<std::vector<int64_t>, tessera::sdk::kFollowers> ids_;
};

}  // namespace extras
