// Recognises fields of text that are lists of numbers of one length: vectors.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/number_summary.h"

namespace tessera::cli {

// Rows whose values are lists of numbers, of which at least one is not whole.
struct VectorSeen {
  int64_t least = 0, most = 0;  // numbers of a row; 0: the rows are no such lists
  int64_t rows = 0;             // with a list
  int64_t empty = 0;            // rows without any number
  int64_t broken = 0;           // values that are not finite float32 numbers, such as NaN
  double smallest = 0, largest = 0;
  NumberSummary numbers;   // of all rows
  bool bracketed = false;  // written as [0.5, -1], or lists of the file format
  char separator = ' ';    // between the numbers, if there are no brackets

  // Values of each row, if all rows have equally many; 0: they differ, or are no vectors.
  int64_t width() const { return least == most ? most : 0; }
};

class VectorLook {
 public:
  void add(std::string_view field);  // not empty
  VectorSeen seen() const;

 private:
  bool take(std::string_view text, char separator);
  bool begin(std::string_view field);

  VectorSeen seen_;
  bool failed_ = false, any_ = false;
  int64_t items_ = 0, pointed_ = 0, parts_ = 0;  // numbers; those written with a point or exponent; those not whole
};

}  // namespace tessera::cli
