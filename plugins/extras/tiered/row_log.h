// The places of records in a table's file, which is written in long runs of blocks wherever there is room, never in
// place: a disk takes thousands of rows in one request as fast as one.
//
// A place is a record's number in the file: so many of them in each block (or one in several blocks, where records are
// large), so many blocks in each segment. Each place that is written is either the newest copy of a row on the disk (it
// is held) or a former one. Segments with few held places are emptied into others, and then written again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "row_file.h"

namespace extras {

// A record in the file: the row's number, and what it has.
struct LogShape {
  LogShape(int64_t rows, uint64_t record_bytes);

  static constexpr int64_t kMostRows = int64_t{1} << 29;
  uint64_t stride;       // bytes of a record with its row's number
  uint32_t in_block;     // records
  uint64_t block_bytes;  // what is read for one of them: a multiple of kBlockBytes
  uint32_t blocks;       // of a segment
  uint32_t segments;     // of the file, when it is as long as it gets
  uint64_t file_bytes() const { return block_bytes * blocks * segments; }
};

class RowLog {
 public:
  static constexpr uint32_t kNowhere = UINT32_MAX;

  explicit RowLog(const LogShape& shape);

  const LogShape& shape() const { return shape_; }
  // The bytes of the place's record, after its row's number; in the file, and in memory that has `first_block` first.
  uint64_t offset(uint32_t place) const { return at(place, 0); }
  uint64_t at(uint32_t place, uint32_t first_block) const {
    return (place / shape_.in_block - first_block) * shape_.block_bytes + place % shape_.in_block * shape_.stride +
           sizeof(uint32_t);
  }

  // For whoever writes. The next `count` blocks, which must be there (see tight()).
  void take(uint32_t count, std::vector<uint32_t>& blocks);
  // True if less is free than writing `count` blocks and emptying segments afterwards need.
  bool tight(uint32_t count) const { return free_blocks() < count + spare_; }
  uint32_t free_blocks() const;
  // Nobody reads places any more that were not held when this was called last.
  void reuse();

  // The owners of places; read with the table's lock.
  void hold(uint32_t place) { ++held_[segment(place)]; }
  void drop(uint32_t place) {
    if (place != kNowhere) --held_[segment(place)];
  }
  // Segments to be emptied, so that at least a block is won, in the order of their places; those without a held
  // place need not be read.
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
  const uint32_t spare_;  // blocks that are kept free for emptying others
  std::vector<State> states_;
  std::vector<uint32_t> held_;     // places of each segment
  std::vector<uint32_t> unused_;   // segments, the next one last
  std::vector<uint32_t> cleared_;  // that may still be read
  uint32_t open_ = kNowhere, next_block_ = 0;
};

}  // namespace extras
