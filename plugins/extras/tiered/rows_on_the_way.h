// Records between the cache and the file: read early, or waiting to be written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace extras {

inline constexpr uint32_t kNoRow = UINT32_MAX;

class RowsOnTheWay {
 public:
  explicit RowsOnTheWay(int64_t floats) : floats_(floats) {}

  struct Row {
    uint32_t row = kNoRow;
    uint32_t place = 0;    // place of its newest copy in the file
    uint32_t take = 0;     // the count of takes when it came, or when prefetch() last asked for it
    uint32_t version = 0;  // incremented when the entry gets another record
    bool changed = false;  // true if the file has another value, or none
  };
  // Adds the record of a row that is not here yet; returns its entry.
  uint32_t put(const Row& row, const float* record) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(rows_.size()));
      rows_.emplace_back();
      records_.resize(rows_.size() * static_cast<size_t>(floats_));
    }
    const uint32_t i = free_.back();
    free_.pop_back();
    const uint32_t version = rows_[i].version + 1;
    rows_[i] = row;
    rows_[i].version = version;
    changed_ += row.changed;
    std::copy_n(record, floats_, this->record(i));
    return i;
  }
  void drop(uint32_t i) {
    changed_ -= rows_[i].changed;
    rows_[i].row = kNoRow;
    rows_[i].changed = false;
    free_.push_back(i);
  }
  void written(uint32_t i, uint32_t place) {
    changed_ -= rows_[i].changed;
    rows_[i].changed = false;
    rows_[i].place = place;
  }
  void moved(uint32_t i, uint32_t place) { rows_[i].place = place; }  // sets the place of its copy in the file
  void touch(uint32_t i, uint32_t take) { rows_[i].take = take; }

  const Row& row(uint32_t i) const { return rows_[i]; }
  float* record(uint32_t i) { return records_.data() + static_cast<int64_t>(i) * floats_; }
  size_t changed() const { return changed_; }
  uint32_t places() const { return static_cast<uint32_t>(rows_.size()); }  // includes free entries, whose row is kNoRow
  uint64_t bytes() const { return records_.size() * sizeof(float) + rows_.size() * sizeof(Row); }

 private:
  int64_t floats_;
  std::vector<Row> rows_;
  std::vector<uint32_t> free_;
  std::vector<float> records_;
  size_t changed_ = 0;
};

}  // namespace extras
