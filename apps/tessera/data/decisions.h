// The role of each column of the files in the job.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct Decision {
  enum class Kind { kLabel, kOtherLabel, kLeftOut, kFeature };
  Kind kind = Kind::kFeature;
  std::string reason;        // kLeftOut: "it is empty"; kOtherLabel: why it seems to be one
  bool dense = false;        // the number itself
  bool ids = false;          // a row of a table for each value, or each item of a list
  bool buckets = false;      // a row of a table for each range of the number
  bool was_missing = false;  // 1 if there is no number
  bool times = false;        // hour, weekday and days of a time
};

// The decision for each column. A number has few values if at most kFewNumbers of them differ.
constexpr int64_t kFewNumbers = 50;
std::vector<Decision> decide(const std::vector<ColumnSeen>& columns, const Labels& labels);

}  // namespace tessera::cli
