// Decides which role each column of the files has in the job.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct Decision {
  enum class Kind { kLabel, kOtherLabel, kLeftOut, kFeature };
  Kind kind = Kind::kFeature;
  // kLeftOut: why it is left out, such as "it is empty"; kOtherLabel: why it seems to be a label
  std::string reason;
  bool dense = false;        // use the number itself
  bool ids = false;          // a table row for each value, or for each item of a list
  bool buckets = false;      // a table row for each range of the number
  bool vector = false;       // use the list of numbers itself
  bool was_missing = false;  // also a dense feature that is 1 if the number is missing
  bool times = false;        // hour, weekday and days of a time
};

// The decision for each column. A number column has few values if at most kFewNumbers of them differ.
constexpr int64_t kFewNumbers = 50;
std::vector<Decision> decide(const std::vector<ColumnSeen>& columns, const Labels& labels);

// True if the name of whole numbers makes them ids.
bool ids_by_name(const ColumnSeen& column);
// True for whole numbers, enough of them, each of which is in one row.
bool all_differ(const ColumnSeen& column);

}  // namespace tessera::cli
