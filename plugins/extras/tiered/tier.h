// Tables in three places: rows in use are in the inner kernel's memory (the cache), rows on their way to and from the
// disk are next to it, and all others are in a file, or not stored yet.
//
// A row's newest value is in exactly one place, and a word per row says which: in the cache; among the rows on their
// way; in the file; or nowhere, because it still has its start value. Rows move and are not copied: prefetch() brings
// rows from the file to those on their way, and take() moves them into the cache. A changed row that take() pushes out
// goes the other way: it joins the rows on their way, and write_back(), in a thread of its own, writes it to the file.
#pragma once

#include <tessera/sdk/draft/row_marks.h>
#include <tessera/sdk/inner_kernel.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "id_map.h"
#include "records.h"
#include "row_file.h"
#include "row_log.h"
#include "rows_on_the_way.h"

namespace extras {

namespace sdk = tessera::sdk;

// One of a tier's tables. Its rows start at the tier's row `first`.
struct TierTable {
  std::string name;
  uint32_t number = 0;  // the table's number for start_values
  int64_t rows = 0;
  int64_t first = 0;
};

class Tier {
 public:
  struct Options {
    std::vector<TierTable> tables;  // tables that share the cache and the file
    int64_t slots = 0;              // capacity of the cache in rows
    RecordShape record;
    RowFileOptions file;
  };
  Tier(Options options, sdk::InnerInstance inner, const sdk::StartValues& start);

  const sdk::InnerInstance& inner() const { return inner_; }
  int64_t slots() const { return options_.slots; }
  const RecordShape& record() const { return options_.record; }
  const TierTable& table(size_t t) const { return options_.tables[t]; }

  // Finds the cache's slot of each row, and brings missing rows in. All rows are of one table. They stay until
  // release(). `pinned` gets each slot once. With `trains`, the rows count as used.
  void take(std::span<const int64_t> rows, bool trains, int64_t* slots, std::vector<uint32_t>& pinned);
  void release(std::span<const uint32_t> pinned) noexcept;
  // The number of these rows that take() would find in memory now.
  uint64_t in_memory(std::span<const int64_t> rows);
  void changed(std::span<const uint32_t> pinned);  // call after backward has changed these slots' rows
  // Reads rows of a later take(); called in another thread, concurrently with everything else.
  void prefetch(std::span<const int64_t> rows);
  // Writes the rows that wait to be written. waits() is true if there are enough of them.
  void write_back();
  bool waits() const;

  // Reads records of different rows, which must ascend.
  void read(std::span<const int64_t> rows, float* records);
  void write(std::span<const int64_t> rows, const float* records);
  // The rows changed by changed() or write() since a follower's start_marks().
  void start_marks(uint32_t follower) { marks_.start(follower, static_cast<int64_t>(at_.size())); }
  const sdk::RowMarks& marks() const { return marks_; }

  tsr_kernel_stats stats(size_t table) const;

 private:
  struct Slot {
    uint32_t row = kNoRow;
    uint32_t place = RowLog::kNowhere;  // place of the row's newest copy in the file
    uint32_t take = 0;                  // the last take that had it
    uint32_t wanted = 0;                // the next take that needs it, as far as prefetch() knew
    uint16_t pins = 0;
    bool changed = false;
  };
  // The place of a row: two bits for the kind of place, and an index there.
  enum Where : uint32_t { kStarts = 0, kCached = 1, kOnTheWay = 2, kStored = 3 };
  static constexpr uint32_t kNumber = (1u << 30) - 1;
  static constexpr uint32_t word(Where where, uint32_t number) { return where << 30 | number; }
  static Where where(uint32_t word) { return static_cast<Where>(word >> 30); }
  static uint32_t number(uint32_t word) { return word & kNumber; }
  using Lock = std::unique_lock<std::mutex>;
  // A row that is read from the file.
  struct Stored {
    uint32_t place;
    float* record;
  };
  // A record to be written, of a row on its way or a row in a segment that is emptied.
  struct Written {
    uint32_t row, from;    // from: the row's entry among those on their way, or its place in the file
    uint32_t version = 0;  // version of the entry
  };

  static constexpr size_t kWordsAhead = 32;  // prefetch distance
  uint32_t& at(int64_t row) { return at_[static_cast<size_t>(row)]; }
  size_t table_of(int64_t row) const;
  // Prefetches for a loop over a list that has reached a position. They are always inlined, because GCC 12 drops calls
  // of functions that only prefetch.
  [[gnu::always_inline]] void prefetch_slot(std::span<const uint32_t> slots, size_t position) const {
    constexpr size_t kAhead = 16;
    if (position + kAhead < slots.size()) __builtin_prefetch(&slots_[slots[position + kAhead]], 1);
  }
  void pin(uint32_t slot, bool trains, std::vector<uint32_t>& pinned);
  void age(size_t used);
  bool needs_file();  // true if some of missing_rows_ must be read from the file
  uint32_t victim();
  void make_room(size_t rows);
  void push_out(std::span<const uint32_t> slots);
  void bring_in(bool trains, std::vector<uint32_t>& pinned);
  void put_on_the_way(int64_t row, bool changed, uint32_t place, const float* record);
  void fill_starts(std::span<const int64_t> rows, std::vector<float>& records) const;
  void read_stored(std::span<Stored> rows, bool runs);
  void drop_old();
  void make_file_room(uint32_t blocks);
  void write_changed(size_t most);
  void empty_segments();
  void append(std::span<const Written> rows);
  uint32_t copy_in_file(int64_t row);

  const Options options_;
  const size_t batch_rows_;  // rows written back at a time
  sdk::InnerInstance inner_;
  const sdk::StartValues start_;

  // A thread that writes to the file holds the first lock, and a thread that reads places in it the second. The third
  // guards everything below. They are taken in this order.
  mutable std::mutex write_mutex_, read_mutex_, mutex_;
  RowLog log_;
  RowFile file_;
  std::vector<uint32_t> at_;  // a word per row
  sdk::RowMarks marks_;
  std::vector<uint8_t> uses_;  // use count per row, whether cached or not; age() halves it
  int64_t aged_ = 0;           // the next row whose use count is halved
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t hand_ = 0;
  RowsOnTheWay on_the_way_;
  uint32_t takes_ = 1;
  struct Counts {
    uint64_t lookups = 0, misses = 0, evictions = 0, reads = 0, writes = 0;
  };
  std::vector<Counts> counts_;  // per table
  double read_seconds_ = 0, wait_seconds_ = 0;

  // Scratch memory of take(), read() and write(); of threads that hold read_mutex_; of prefetch(); of write_back().
  RowBuffer rows_;
  IdMap missing_;
  std::vector<int64_t> missing_rows_, from_file_, new_rows_;
  std::vector<float> records_, new_records_;
  std::vector<uint32_t> victims_;
  std::vector<Piece> pieces_;
  std::vector<Stored> stored_;
  BlockBuffer run_;
  IdMap early_;
  std::vector<int64_t> early_rows_, early_new_;
  std::vector<Stored> early_stored_;
  std::vector<uint32_t> early_places_;
  std::vector<float> early_records_, early_starts_;
  std::vector<Written> written_;
  std::vector<uint32_t> blocks_;
  std::vector<Piece> out_pieces_;
  BlockBuffer out_, segment_;
};

}  // namespace extras
