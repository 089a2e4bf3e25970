// Assigns places in a table's file to records. A record is never overwritten in place: the file is written in long runs
// of blocks wherever there is free space, because a disk writes thousands of rows in one request as fast as one row.
//
// A place is a record's number in the file. Each block has a fixed number of records (or a large record has several
// blocks), and each segment a fixed number of blocks. A written place is held if it is the newest copy of a row on the
// disk; otherwise it is old. Segments with few held places are emptied into others and then reused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "row_file.h"

namespace extras {

// A record in the file: the row's number and its values.
struct LogShape {
  LogShape(int64_t rows, uint64_t record_bytes);

  static constexpr int64_t kMostRows = int64_t{1} << 29;
  uint64_t stride;       // bytes of a record including its row's number
  uint32_t in_block;     // records per block
  uint64_t block_bytes;  // bytes read for one record, a multiple of kBlockBytes
  uint32_t blocks;       // blocks per segment
  uint32_t segments;     // segments of the file at its full length
  uint64_t file_bytes() const { return block_bytes * blocks * segments; }
};

class RowLog {
 public:
  static constexpr uint32_t kNowhere = UINT32_MAX;

  explicit RowLog(const LogShape& shape);

  const LogShape& shape() const { return shape_; }
  // The byte offset of the place's record, after its row's number. offset() is for the file, and at() for memory that
  // starts with `first_block`.
  uint64_t offset(uint32_t place) const { return at(place, 0); }
  uint64_t at(uint32_t place, uint32_t first_block) const {
    return (place / shape_.in_block - first_block) * shape_.block_bytes + place % shape_.in_block * shape_.stride +
           sizeof(uint32_t);
  }

  // For the writing thread. Takes the next `count` blocks, which must be available (see tight()).
  void take(uint32_t count, std::vector<uint32_t>& blocks);
  // True if fewer blocks are free than writing `count` blocks and then emptying segments would need.
  bool tight(uint32_t count) const { return free_blocks() < count + spare_; }
  uint32_t free_blocks() const;
  // Call it when no thread still reads places that were not held at the last call.
  void reuse();

  // Mark places as held or old. Call them with the table's lock.
  void hold(uint32_t place) { ++held_[segment(place)]; }
  void drop(uint32_t place) {
    if (place != kNowhere) --held_[segment(place)];
  }
  // Enough segments to gain at least one block when they are emptied, in the order of their places. A segment without a
  // held place is `empty` and need not be read.
  struct Emptied {
    uint32_t segment;
    bool empty;
  };
  std::vector<Emptied> to_be_emptied() const;
  void emptied(std::span<const Emptied> segments);
  uint64_t bytes() const;

 private:
  enum class State : uint8_t { kUnused, kOpen, kFull, kEmptied };
  uint32_t segment(uint32_t place) const { return place / (shape_.in_block * shape_.blocks); }

  const LogShape shape_;
  const uint32_t spare_;  // blocks kept free for emptying segments
  std::vector<State> states_;
  std::vector<uint32_t> held_;     // held places per segment
  std::vector<uint32_t> unused_;   // free segments, the next one last
  std::vector<uint32_t> cleared_;  // emptied segments that may still be read
  uint32_t open_ = kNowhere, next_block_ = 0;
};

}  // namespace extras
