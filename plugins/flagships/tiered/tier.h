// A table in three places: rows that are in use in the inner kernel's memory (the cache), rows on their way to and from
// the disk beside it, and all others in a file, or nowhere yet.
//
// A row's newest value is in exactly one of them: in the cache; else among those on their way; else in the file, where
// its bit says that it was written; else it is what it starts with. Rows move, they are not copied, so nothing has to
// be kept up to date: prefetch() brings rows from the file to the way, take() from there into the cache, and what it
// pushes out goes the other way if it was changed.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "id_map.h"
#include "inner_kernel.h"
#include "records.h"
#include "row_file.h"

namespace flagships {

// Of a table's rows, in memory.
struct CacheShape {
  int64_t rows = 0;   // of the table
  int64_t slots = 0;  // that the cache has room for
};

// Records that are neither in the cache nor only in the file.
class RowsOnTheWay {
 public:
  explicit RowsOnTheWay(int64_t floats) : floats_(floats) {}

  static constexpr uint32_t kNone = IdMap::kNone;
  uint32_t find(int64_t id) const { return places_.find(id); }
  // Room for the row, whose record the caller writes; what it had there before is over.
  uint32_t put(int64_t id, bool changed, uint64_t take);
  void drop(uint32_t place);
  float* record(uint32_t place) { return records_.data() + static_cast<int64_t>(place) * floats_; }

  struct Row {
    int64_t id = -1;
    uint64_t take = 0;     // when it came, or was announced
    uint32_t version = 0;  // rises when the place gets another record
    bool changed = false;  // the file has another value, or none
  };
  const Row& row(uint32_t place) const { return rows_[place]; }
  void written(uint32_t place);  // the file has it now
  void touch(uint32_t place, uint64_t take) { rows_[place].take = take; }
  size_t changed() const { return changed_; }
  // Places that are in use, in any order.
  template <class Body>
  void for_each(const Body& body) const {
    for (uint32_t p = 0; p < rows_.size(); ++p) {
      if (rows_[p].id >= 0) body(p);
    }
  }
  uint64_t bytes() const { return records_.size() * sizeof(float) + rows_.size() * sizeof(Row) + places_.bytes(); }

 private:
  int64_t floats_;
  IdMap places_;
  std::vector<Row> rows_;
  std::vector<uint32_t> free_;
  std::vector<float> records_;
  size_t changed_ = 0;
};

class Tier {
 public:
  struct Options {
    std::string name;  // of the table
    uint32_t number;   // for start_values
    CacheShape shape;
    RecordShape record;
    RowFileOptions file;
  };
  Tier(Options options, InnerInstance inner, const sdk::StartValues& start);

  const InnerInstance& inner() const { return inner_; }
  int64_t slots() const { return options_.shape.slots; }

  // The cache's slot of each id; missing rows are brought in. They stay until release(), whatever else comes.
  // `pinned` gets each slot once. `trains`: the rows count as used, and the batch as one that was prefetched.
  void take(std::span<const int64_t> ids, bool trains, int64_t* slots, std::vector<uint32_t>& pinned);
  void release(std::span<const uint32_t> pinned) noexcept;
  void changed(std::span<const uint32_t> pinned);  // their rows, by backward
  // Beside all others, in another thread: ids of a later take().
  void prefetch(std::span<const int64_t> ids);

  // Records of rows [first, first + count), and of any rows.
  void read(int64_t first, int64_t count, float* records);
  void write(std::span<const int64_t> ids, const float* records);

  tsr_kernel_stats stats() const;

 private:
  struct Slot {
    int64_t id = -1;
    uint32_t pins = 0;
    uint8_t uses = 0;  // seen of late, at most kMostUses
    bool changed = false;
    uint64_t take = 0;  // the last one that had it
  };
  using Lock = std::unique_lock<std::mutex>;

  bool stored(int64_t id) const { return stored_[static_cast<size_t>(id) / 64] >> (id % 64) & 1; }
  void set_stored(int64_t id) { stored_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); }
  uint64_t offset(int64_t id) const { return static_cast<uint64_t>(id) * options_.record.bytes(); }

  void pin(uint32_t slot, bool trains, std::vector<uint32_t>& pinned);
  bool needs_file() const;  // for the missing rows
  void make_room(size_t rows);
  void push_out(std::span<const uint32_t> slots);
  void bring_in(bool trains, std::vector<uint32_t>& pinned);
  void fill_starts(std::span<const int64_t> ids, std::vector<float>& records) const;
  void read_records(std::span<const int64_t> ids, std::vector<float>& records);
  void write_back(Lock& lock);
  void drop_old();

  const Options options_;
  const size_t batch_rows_;  // that are written back at a time
  InnerInstance inner_;
  const sdk::StartValues start_;
  RowFile file_;

  // The file is touched with the first lock held, all below with the second, which is taken after it.
  mutable std::mutex file_mutex_;
  mutable std::mutex mutex_;
  IdMap cached_;  // ids to slots
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t hand_ = 0;
  RowsOnTheWay on_the_way_;
  std::vector<uint64_t> stored_;  // a bit for each row: the file has it
  uint64_t takes_ = 0;
  uint64_t lookups_ = 0, hits_ = 0, evictions_ = 0, reads_ = 0, writes_ = 0;
  double read_seconds_ = 0, wait_seconds_ = 0;

  // Scratch: of take(), read() and write(); of those with the first lock; of prefetch(); of write_back().
  RowBuffer rows_;
  IdMap missing_;
  std::vector<int64_t> missing_ids_, from_file_, new_ids_;
  std::vector<float> records_, new_records_;
  std::vector<uint32_t> victims_;
  std::vector<Piece> pieces_;
  IdMap early_;
  std::vector<int64_t> early_ids_, early_new_;
  std::vector<float> early_records_, early_starts_;
  struct Written {
    int64_t id;
    uint32_t place, version;
  };
  std::vector<Written> written_;
  std::vector<float> written_records_;
};

}  // namespace flagships
