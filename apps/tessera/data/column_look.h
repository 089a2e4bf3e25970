// The profile of a column: it looks at all fields, one after the other, in bounded memory.
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
#include "data/written_number.h"

namespace tessera::cli {

enum class Form {
  kEmpty,    // no field has a value
  kNumbers,  // each value is a number; words as NA count as missing
  kWritten,  // numbers that are written as people do: $12.99, 65,5
  kTimes,    // each value is a date, or a date and a time
  kTexts,
  kLists,
  kNested  // begins with [ or { and is no list of items: JSON, lists of lists
};

struct ColumnSeen {
  std::string name;
  std::string unknown_type;  // of the files, which no reader gives values of; empty: it has values
  Form form = Form::kEmpty;
  int64_t fields = 0, missing = 0;
  std::vector<std::string> missing_words;  // of numbers: "NA", "?", which are counted as missing
  std::vector<ListText::Value> values;     // most frequent ones first; at most those that there was memory for
  bool exact = true;                       // `values` are all there are
  int64_t distinct = 0;                    // an estimate unless exact
  int64_t once = 0;                        // of `values`, or of the items of lists: how many came once
  bool repeated = false;                   // a value came again
  NumberSummary numbers;                   // kNumbers, kWritten; kTimes: days since 1970
  int64_t numbers_among = 0;               // kTexts: fields that are numbers
  bool counts = false;                     // each number is larger than the one before
  bool sorted = false;                     // no number or time is less than the one before
  bool hours = false;                      // kTimes: some are not at midnight
  WrittenNumber written;                   // kWritten
  bool list = false;                       // of a format that has lists: fields are their values
  bool weighted = false;                   // a list whose items have weights
  ListText items;                          // kLists of texts
  uint64_t words_hash = 0;                 // of all fields in their order: equal columns have equal ones
  // The last tenth of the rows, and the others.
  double tail_mean = 0, head_mean = 0;  // of the numbers
  int64_t tail_fields = 0;
};

// True if each value is one number.
inline bool is_number(const ColumnSeen& c) { return (c.form == Form::kNumbers || c.form == Form::kWritten) && !c.list; }

class ColumnLook {
 public:
  // The bounds of the values that are kept: how many different ones, and their bytes.
  struct Room {
    size_t values = 20000;
    size_t bytes = size_t{8} << 20;
  };

  ColumnLook(std::string name, bool list, bool weighted, Room room);

  // `tail`: the row is in the last tenth.
  void add(std::string_view field, bool tail);
  // `words_may_miss`: the reader can take words as NA for no number.
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
  void forms(ColumnSeen& out, bool words_may_miss) const;
  void take_written(ColumnSeen& out) const;

  std::string name_;
  bool list_, weighted_;
  Room room_;
  std::unordered_map<uint64_t, size_t> found_;  // by hash
  std::vector<Entry> entries_;
  std::optional<HyperLogLog> estimate_;  // once there is no room
  int64_t fields_ = 0, tail_fields_ = 0, empty_ = 0, words_ = 0, times_ = 0, texts_ = 0;
  bool hours_ = false, repeated_ = false;
  NumberSummary numbers_, days_;
  int64_t tail_numbers_ = 0;
  double tail_sum_ = 0;
  double previous_ = 0;
  bool any_before_ = false, counts_ = true, sorted_ = true;
  uint64_t words_hash_ = 0;
};

}  // namespace tessera::cli
