// Histories of events that arrive without end: a reader of arriving rows around another one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "history/column.h"
#include "history/kept_events.h"
#include "history/kept_lists.h"
#include "history/options.h"
#include "tessera/sdk/draft/arriving.h"

namespace tessera_readers {

// Turns each arriving row into an event with the histories before it. A position holds the number of rows so far, and a
// sum of their hashes. To continue from a position, all rows are read again from the first one, because histories are
// made from them. So the source must still have them.
class ArrivingHistories {
 public:
  // `inner` must outlive this. arriving_of() returns NULL if the rows of `inner` do not arrive over time.
  ArrivingHistories(const HistoryOptions& options, const KeptLists& lists, const tsr_instance& inner);
  static const tsr_reader_arriving* arriving_of(const tsr_instance& inner);
  const std::vector<tessera::sdk::ReaderColumn>& columns() const { return columns_; }  // the columns that are histories
  bool skips() const { return skips_ != nullptr; }

  void follow(const std::string& path, std::string_view position);
  void select(std::span<const tessera::sdk::ReaderWant> wants);
  tessera::sdk::Arrived next(int64_t most, double wait_s);
  std::string position() const;
  void skip(int64_t row, const char* why);

 private:
  struct Output {
    bool list = false;  // true: a history; false: a column of the rows
    size_t from = 0;    // index of the wanted column, or of the event's cell
    uint64_t pool = HistoryPicker::kNoPool;
    int32_t type = TSR_READER_TEXT;
    HistoryColumn values;
  };
  // An event's fields in a row.
  struct Event {
    std::string_view user;  // word of the user, valid until the next event
    TimeKey time;
    uint64_t pool = 0;
  };
  size_t want(const tessera::sdk::ReaderWant& wanted);
  size_t cell_for(const std::string& column, int32_t type);
  tsr_reader_arrived read(int64_t most, double wait_s);
  void read_again();
  bool take(const tsr_reader_arrived& got, int64_t row, bool gives);
  Event event_at(int64_t row);
  void give(int64_t row);
  void add_cell(Output& out, std::string_view cell) const;

  const HistoryOptions& options_;
  const KeptLists& lists_;
  const tsr_instance& inner_;
  const tsr_reader_arriving* api_;
  const tsr_reader_skips* skips_;  // NULL: a bad row ends the reading
  std::vector<tessera::sdk::ReaderColumn> columns_;
  std::string path_;
  std::vector<tessera::sdk::ReaderWant> wants_;  // columns that the inner reader reads
  std::vector<size_t> cells_;                    // indices in wants_ of the columns that are cells of events
  size_t user_ = 0, time_ = 0, by_ = 0;          // indices in wants_
  std::vector<Output> outputs_;
  std::vector<tsr_reader_values> values_, given_;
  std::vector<int64_t> given_rows_;  // rows of values_ that were returned
  std::vector<double> times_;
  std::vector<std::string_view> event_;  // the cells of an event
  TextNumbers no_texts_;                 // empty, because the cells are texts and have no numbers
  TextWord user_word_;
  TimeKeys keys_;
  KeptEvents events_;
  int64_t rows_ = 0, rows_before_ = 0;  // rows so far, and rows before the position that was followed
  uint64_t sum_ = 0, sum_before_ = 0;   // sums of the hashes of these rows
};

}  // namespace tessera_readers
