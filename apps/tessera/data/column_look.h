// Profiles a column: looks at all fields, one after the other, in bounded memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/hyperloglog.h"
#include "data/list_text.h"
#include "data/number_summary.h"
#include "data/vector_look.h"
#include "data/written_number.h"

namespace tessera::cli {

enum class Form {
  kEmpty,    // no field has a value
  kNumbers,  // each value is a number; words such as NA count as missing
  kWritten,  // numbers as people write them: $12.99, 65,5
  kTimes,    // each value is a date, or a date and a time
  kTexts,
  kLists,
  kVectors,  // lists of as many numbers in each row, some of which are not whole
  kNested    // begins with [ or { but is not a list of items: JSON, lists of lists
};

struct ColumnSeen {
  std::string name;
  std::string unknown_type;    // type in the files from which no reader makes values; empty if the column has values
  bool in_some_files = false;  // other files lack the column, so it has no values here
  Form form = Form::kEmpty;
  int64_t fields = 0, missing = 0;
  std::vector<std::string> missing_words;  // words such as "NA" and "?" that count as missing numbers
  std::vector<std::string> own_words;      // other words that stand for a missing number or time: "unknown"
  std::string time_format;                 // kTimes that are not ISO 8601
  std::vector<std::string> time_formats;   // kTexts: the forms that all fields fit, if there are several
  bool other_hours = false;                // some times of `time_format` are not at midnight
  std::vector<ListText::Value> values;     // most frequent first; at most as many as fit into memory
  bool exact = true;                       // `values` is complete
  int64_t distinct = 0;                    // an estimate unless exact
  int64_t once = 0;                        // how many of `values`, or of the items of lists, occurred once
  bool repeated = false;                   // some value occurred more than once
  NumberSummary numbers;                   // kNumbers, kWritten; kTimes: days since 1970
  int64_t numbers_among = 0;               // kTexts: number of fields that are numbers
  int64_t times_among = 0;                 // kTexts: number of fields that are dates, or dates and times
  bool counts = false;                     // each number is larger than its predecessor
  bool sorted = false;                     // no number or time is less than its predecessor
  bool hours = false;                      // kTimes: some are not at midnight
  WrittenNumber written;                   // kWritten only
  bool points_elsewhere = false;           // commas separate the file's fields, or other columns have decimal points
  bool list = false;                       // the file format has lists, so fields are list values
  bool weighted = false;                   // a list whose items have weights
  ListText items;                          // kLists made of texts
  VectorSeen vector;                       // lists of numbers of any length, if some of them are not whole
  NumberSummary lengths;                   // kLists: items of each row that has a value
  uint64_t words_hash = 0;                 // hash over all fields in order; equal columns have equal hashes
  uint64_t pattern_hash = 0;               // the same for columns that are equal except for their words, if exact
  // The last tenth of the rows, and the others.
  double tail_mean = 0, head_mean = 0;  // means of the numbers
  int64_t tail_fields = 0;
};

// True if each value is one number.
inline bool is_number(const ColumnSeen& c) { return (c.form == Form::kNumbers || c.form == Form::kWritten) && !c.list; }

// True for whole numbers of which a double does not hold all digits, as ids of 60 bits.
bool exceeds_doubles(const ColumnSeen& c);

class ColumnLook {
 public:
  // Bounds on the values that are kept: the number of different ones, and their bytes.
  struct Room {
    size_t values = 20000;
    size_t bytes = size_t{8} << 20;
  };

  ColumnLook(std::string name, bool list, bool weighted, Room room);

  // `tail` is true for rows in the last tenth. Returns a hash of the field.
  uint64_t add(std::string_view field, bool tail);
  // The row whose items have been added is a list of that many.
  void end_list(int64_t length);
  // `words_may_miss`: the reader has an option that treats words such as NA as missing numbers.
  ColumnSeen seen(bool words_may_miss) const;

 private:
  enum class Kind { kWord, kNumber, kTime, kText };
  struct Entry {
    ListText::Value value;
    Kind kind = Kind::kText;
    double number = 0;  // kTime: days since 1970
  };

  static Kind kind_of(std::string_view field, double& number);
  void count(const Entry& entry, bool tail);
  void follow(double number);
  void remember(size_t entry);
  void forms(ColumnSeen& out, bool words_may_miss) const;
  bool take_vectors(ColumnSeen& out) const;
  void take_written(ColumnSeen& out) const;
  void take_never(ColumnSeen& out) const;
  bool take_own_words(ColumnSeen& out, bool words_may_miss) const;
  bool take_other_times(ColumnSeen& out) const;
  std::vector<Entry> own_words() const;

  std::string name_;
  bool list_, weighted_;
  Room room_;
  std::unordered_map<uint64_t, size_t> found_;  // hash to index
  std::vector<Entry> entries_;
  std::optional<HyperLogLog> estimate_;  // set once the bounds are reached
  int64_t fields_ = 0, tail_fields_ = 0, empty_ = 0, words_ = 0, times_ = 0, texts_ = 0;
  bool hours_ = false, repeated_ = false;
  NumberSummary numbers_, days_, lengths_;
  bool named_as_time_;
  NumberSummary dated_;                     // of a column named as a time: the numbers except 0 and -1
  VectorLook vectors_;                      // of texts
  int64_t shortest_ = 0, empty_lists_ = 0;  // lists of the file format: the least length above 0
  int64_t tail_numbers_ = 0;
  double tail_sum_ = 0;
  double previous_ = 0;
  bool any_before_ = false, counts_ = true, sorted_ = true;
  std::vector<uint32_t> trail_;  // entries of some rows with a text, evenly spread, in their order
  int64_t trail_step_ = 1;       // rows from one of them to the next
  uint64_t words_hash_ = 0, pattern_hash_ = 0;
};

}  // namespace tessera::cli
