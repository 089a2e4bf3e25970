// Turns a column's values into the model's numbers: parsed from text, or taken from times.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "data/columns.h"
#include "tessera/abi/draft/reader.h"
#include "tessera/config.h"

namespace tessera::data {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// A value that is no number. The message begins with the value: "\"x\" is no number".
class NoNumber : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// True if `take` needs a date or time: hour, weekday, month, days, hours, minutes.
bool takes_time(const ColumnConfig& column);
// True if it counts from a time on: days, hours, minutes.
bool counts_time(const ColumnConfig& column);
// Nanoseconds since 1970 of a number of seconds, milliseconds, microseconds or nanoseconds. Its size tells the unit,
// because times lie between March 1973 and the end of 2261. Unset: it is no such time.
std::optional<int64_t> time_of_number(double number);
// Number of ids that `take` gives: 24 hours, 7 weekdays, 12 months, 2 for `missing`; 0: any number.
int64_t rows_taken(const ColumnConfig& column);
// True if numbers must be parsed from text here, whatever the reader could do.
bool numbers_in_text(const ColumnConfig& column);

// The number in a field, after `take`, `decimal` and `strip`. kMissing: the field is empty or holds a word for a
// missing value. `since` is since_of() the column. Throws NoNumber.
double number_in(const ColumnConfig& column, std::string_view text, int64_t since);
// The column's `since`, in nanoseconds from 1970 on; 0 if it has none.
int64_t since_of(const ColumnConfig& column);

// One block of a column whose values have the type `type`.
class ColumnNumbers {
 public:
  ColumnNumbers(const ColumnConfig& column, int32_t type, const tsr_reader_values& values)
      : column_(column),
        since_(since_of(column)),
        type_(type),
        values_(values),
        counts_missing_(column.take == "missing") {}
  // Value i; without lists it belongs to row i. kMissing: there is no value, or it is not finite. Throws NoNumber.
  double at(int64_t i) const {
    const bool there = values_.lists != nullptr || values_.present == nullptr || values_.present[i] != 0;
    if (!there) return counts_missing_ ? 1 : kMissing;
    if (type_ == TSR_READER_FLOAT64) return finite(static_cast<const double*>(values_.values)[i]);
    if (type_ == TSR_READER_FLOAT32) return finite(static_cast<double>(static_cast<const float*>(values_.values)[i]));
    return number_in(column_, text(i), since_);
  }
  // Only for columns that are read as text.
  std::string_view text(int64_t i) const {
    return {static_cast<const char*>(values_.values) + values_.texts[i],
            static_cast<size_t>(values_.texts[i + 1] - values_.texts[i])};
  }

 private:
  static double finite(double value) { return std::isfinite(value) ? value : kMissing; }

  const ColumnConfig& column_;
  int64_t since_;
  int32_t type_;
  const tsr_reader_values& values_;
  bool counts_missing_;
};

// Does the same, but the error for a value that is no number names file, row and column.
double number_at(const ColumnNumbers& numbers, int64_t i, const BlockRows& at, int64_t row, const std::string& column);

// True if `value` >= `bound`. A float32 that is the nearest one to `bound` counts as equal.
inline bool reaches(double value, double bound) {
  const auto narrow = static_cast<float>(value);
  return value >= bound || (static_cast<double>(narrow) == value && narrow >= static_cast<float>(bound));
}

}  // namespace tessera::data
