// One pass over all events before histories are made. It finds the users, the order of their events, and the part that
// each event belongs to.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "history/column.h"
#include "history/options.h"
#include "history/time_key.h"
#include "inner_reader.h"

namespace tessera_readers {

// The place of an event's row, for messages.
struct EventPlace {
  const std::string& file;
  int64_t row;  // of the file, from 1
  template <class... Parts>
  [[noreturn]] void wrong(const std::string& column, const Parts&... parts) const {
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, file, ", row ", row, ", column \"", column, "\": ", parts...);
  }
};

// The files with the events.
struct EventFiles {
  std::string path;
  std::vector<std::string> files;
  std::vector<tessera::sdk::ReaderBlock> blocks;
  EventPlace place(size_t block, int64_t row) const {
    const tessera::sdk::ReaderBlock& b = blocks[block];
    return {files[static_cast<size_t>(b.file)], b.first_row + row + 1};
  }
};

// Failure(TSR_INVALID_ARGUMENT): the split leaves a part without samples.
void require_parts(const HistoryOptions& options, const std::string& path,
                   const std::array<int64_t, kHistoryParts>& samples);

class HistorySurvey {
 public:
  // Reads the users and times of all events. Failure(TSR_INVALID_ARGUMENT): an event has no user or no time, the order
  // is not the promised one, or a part is empty.
  HistorySurvey(const HistoryOptions& options, const EventFiles& files, InnerReader& inner);

  // Returns the user of a row. Fails if the row has none.
  static std::string_view user_of(const HistoryOptions& options, const tsr_reader_values& users, int64_t row,
                                  const EventPlace& place);

  TextNumbers& users() { return users_; }
  TimeKeys::Form time_form() const { return keys_.form(); }
  int64_t events(size_t user) const { return counts_[user]; }
  // Returns the part of the user's event `index`, which has this time. The time matters only if the split is by time.
  HistoryPart part(size_t user, int64_t index, const TimeKey& time) const;
  // Returns the number of the user's events in this part and in the parts before it, in a split by time.
  int64_t events_until(size_t user, HistoryPart part) const { return until_[user][part]; }
  TimeKey time_of(const tsr_reader_values& times, int64_t row, const EventPlace& place);

  // Returns the values of history.values that no event has.
  std::vector<std::string> absent_values() const;

  struct Block {
    std::array<int64_t, kHistoryParts> rows{};
    int64_t entries = 0;  // upper bound of the number of events in the histories of its rows
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  // For sorted events: a row's user, the event's number among those of the user, and its part.
  struct Row {
    uint32_t user, place;
    HistoryPart part;
  };
  const std::vector<Row>& rows() const { return rows_; }

 private:
  void read(InnerReader& inner);
  void count_action(const tsr_reader_values& actions, int64_t row);
  void add(size_t block, size_t user, const TimeKey& time, const EventPlace& place);
  void place_sorted();
  void count_parts();
  void require_samples() const;

  const HistoryOptions& options_;
  const EventFiles& files_;
  TimeKeys keys_;
  TimeKey validation_from_, test_from_;
  bool bounded_ = false;  // the two times above are set
  TextWord word_;
  TextNumbers users_;  // numbers of the users' words
  std::vector<int64_t> counts_;
  std::vector<int64_t> actions_;  // number of events, by index in history.values
  // Counts of events_until(), by user and part; only in a split by time.
  std::vector<std::array<int64_t, kHistoryParts>> until_;
  std::vector<Block> blocks_;
  std::vector<Row> rows_;
  std::vector<TimeKey> times_;                      // by row; only while events are sorted
  std::vector<TimeKey> last_times_;                 // by user: time of the last event in file order
  std::vector<std::array<size_t, 2>> last_blocks_;  // by user: blocks of the last event and of the one before it
};

}  // namespace tessera_readers
