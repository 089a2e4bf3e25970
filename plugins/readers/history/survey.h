// One pass over all events before histories are made: who the users are, in which order their events come, and which
// part each event belongs to.
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

// A row of an event, for messages.
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

  // The user of a row that must have one.
  static std::string_view user_of(const HistoryOptions& options, const tsr_reader_values& users, int64_t row,
                                  const EventPlace& place);

  TextNumbers& users() { return users_; }
  TimeKeys::Form time_form() const { return keys_.form(); }
  int64_t events(size_t user) const { return counts_[user]; }
  // The part of the user's event `index`, which has this time; the time matters only if the split is by time.
  HistoryPart part(size_t user, int64_t index, const TimeKey& time) const;
  // The number of the user's events that a part and those before it have in a split by time.
  int64_t events_until(size_t user, HistoryPart part) const { return until_[user][part]; }
  TimeKey time_of(const tsr_reader_values& times, int64_t row, const EventPlace& place);

  // Those of history.values that no event has.
  std::vector<std::string> absent_values() const;

  struct Block {
    std::array<int64_t, kHistoryParts> rows{};
    int64_t entries = 0;  // events in the histories of its rows, at most
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  // If events are sorted: the user of each row, its event's number among the user's, and its part.
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
  bool bounded_ = false;  // those are set
  TextWord word_;
  TextNumbers users_;  // by their words
  std::vector<int64_t> counts_;
  std::vector<int64_t> actions_;                           // by history.values: number of events
  std::vector<std::array<int64_t, kHistoryParts>> until_;  // only of a split by time
  std::vector<Block> blocks_;
  std::vector<Row> rows_;
  std::vector<TimeKey> times_;                      // by row, while they are sorted
  std::vector<TimeKey> last_times_;                 // by user, in file order
  std::vector<std::array<size_t, 2>> last_blocks_;  // by user: those of its last event and of the one before
};

}  // namespace tessera_readers
