// Writes rows to the file in long runs: changed rows that left the cache, and the rows of segments that are emptied.
#include <algorithm>
#include <cstring>

#include "tier.h"

namespace extras {

bool Tier::waits() const {
  const Lock lock(mutex_);
  return on_the_way_.changed() >= batch_rows_;
}

void Tier::write_back() {
  const Lock write(write_mutex_);
  while (true) {
    Lock lock(mutex_);
    const size_t rows = std::min(on_the_way_.changed(), 4 * batch_rows_);
    if (rows < batch_rows_) return;
    lock.unlock();
    make_file_room(static_cast<uint32_t>((rows + log_.shape().in_block - 1) / log_.shape().in_block));
    write_changed(rows);
  }
}

void Tier::make_file_room(uint32_t blocks) {
  const auto reuse = [&] {
    const Lock nobody_reads(read_mutex_);
    log_.reuse();
  };
  if (log_.tight(blocks)) reuse();
  while (log_.tight(blocks)) {
    const uint32_t before = log_.free_blocks();
    empty_segments();
    reuse();
    if (log_.free_blocks() <= before) sdk::fail(TSR_INTERNAL, "no segment of a file of rows can be emptied");
  }
}

// Writes up to `most` changed rows on their way; by now there may be more.
void Tier::write_changed(size_t most) {
  const auto floats = static_cast<size_t>(options_.record.floats());
  const LogShape& shape = log_.shape();
  written_.clear();
  Lock lock(mutex_);
  for (uint32_t i = 0; i < on_the_way_.places() && written_.size() < most; ++i) {
    const RowsOnTheWay::Row& row = on_the_way_.row(i);
    if (row.row != kNoRow && row.changed) written_.push_back({row.row, i, row.version});
  }
  std::sort(written_.begin(), written_.end(), [](const Written& a, const Written& b) { return a.row < b.row; });
  const size_t blocks = (written_.size() + shape.in_block - 1) / shape.in_block;
  char* const out = out_.room(blocks * shape.block_bytes);
  for (size_t i = 0; i < written_.size(); ++i)
    std::memcpy(out + log_.at(static_cast<uint32_t>(i), 0), on_the_way_.record(written_[i].from),
                floats * sizeof(float));
  lock.unlock();
  append(written_);
  lock.lock();
  for (size_t i = 0; i < written_.size(); ++i) {
    const Written& w = written_[i];
    const uint32_t place = blocks_[i / shape.in_block] * shape.in_block + static_cast<uint32_t>(i % shape.in_block);
    const RowsOnTheWay::Row& row = on_the_way_.row(w.from);
    ++counts_[table_of(w.row)].writes;
    if (row.row != w.row || row.version != w.version) continue;  // the row was taken; the entry may have another one
    on_the_way_.written(w.from, place);
    log_.hold(place);
  }
  drop_old();
}

// Moves rows out of segments that have few held places.
void Tier::empty_segments() {
  const LogShape& shape = log_.shape();
  const uint64_t bytes = shape.blocks * shape.block_bytes;
  Lock lock(mutex_);
  const std::vector<RowLog::Emptied> segments = log_.to_be_emptied();
  lock.unlock();
  written_.clear();
  for (const RowLog::Emptied& e : segments) {
    if (e.empty) continue;
    const Piece all{segment_.room(bytes), bytes, e.segment * bytes};
    file_.read_back(std::span(&all, 1));
    const uint32_t first_block = e.segment * shape.blocks;
    lock.lock();
    for (uint32_t k = 0; k < shape.blocks * shape.in_block; ++k) {
      const uint32_t place = first_block * shape.in_block + k;
      const char* const record = segment_.data() + log_.at(place, first_block);
      uint32_t row = 0;
      std::memcpy(&row, record - sizeof(row), sizeof(row));
      if (row >= at_.size() || copy_in_file(row) != place) continue;
      const size_t i = written_.size();
      written_.push_back({row, place});
      // keep() lets out_ grow without losing its content.
      std::memcpy(out_.keep((i / shape.in_block + 1) * shape.block_bytes) + log_.at(static_cast<uint32_t>(i), 0),
                  record, options_.record.bytes());
    }
    lock.unlock();
  }
  append(written_);
  lock.lock();
  for (size_t i = 0; i < written_.size(); ++i) {
    const Written& w = written_[i];
    const uint32_t place = blocks_[i / shape.in_block] * shape.in_block + static_cast<uint32_t>(i % shape.in_block);
    if (copy_in_file(w.row) != w.from) continue;
    const uint32_t at_row = at(w.row);
    if (where(at_row) == kStored) at(w.row) = word(kStored, place);
    if (where(at_row) == kCached) slots_[number(at_row)].place = place;
    if (where(at_row) == kOnTheWay) on_the_way_.moved(number(at_row), place);
    log_.drop(w.from);
    log_.hold(place);
  }
  log_.emptied(segments);
}

uint32_t Tier::copy_in_file(int64_t row) {
  const uint32_t w = at(row);
  if (where(w) == kStored) return number(w);
  if (where(w) == kCached) return slots_[number(w)].place;
  return where(w) == kOnTheWay ? on_the_way_.row(number(w)).place : RowLog::kNowhere;
}

// Writes the records in out_ to the next free blocks.
void Tier::append(std::span<const Written> rows) {
  const LogShape& shape = log_.shape();
  const size_t blocks = (rows.size() + shape.in_block - 1) / shape.in_block;
  char* const out = out_.keep(blocks * shape.block_bytes);
  for (size_t i = 0; i < blocks * shape.in_block; ++i) {
    const uint32_t row = i < rows.size() ? rows[i].row : kNoRow;
    std::memcpy(out + log_.at(static_cast<uint32_t>(i), 0) - sizeof(row), &row, sizeof(row));
  }
  log_.take(static_cast<uint32_t>(blocks), blocks_);
  out_pieces_.clear();
  for (size_t b = 0; b < blocks; ++b) {
    constexpr uint64_t kLongest = 256 << 10;
    if (b > 0 && blocks_[b] == blocks_[b - 1] + 1 && out_pieces_.back().bytes + shape.block_bytes <= kLongest)
      out_pieces_.back().bytes += shape.block_bytes;
    else
      out_pieces_.push_back({out + b * shape.block_bytes, shape.block_bytes, blocks_[b] * shape.block_bytes});
  }
  file_.write(out_pieces_);
}

}  // namespace extras
