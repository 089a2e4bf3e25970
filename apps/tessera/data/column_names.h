// Reads what the names of columns say about their numbers: ids, times, and the unit of times.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"

namespace tessera::cli {

// Splits a name into words in lower case: "userId", "user_id" and "user.id" give user and id.
std::vector<std::string> words_of(const std::string& name);

// True if the name ends in a word for an id, such as userId, zip or movie, or begins with "id", as id_client does. The
// order and distance of ids mean nothing.
bool named_as_id(const std::string& name);

// True if a word of the name says that the values are times: created_at, order_date, ts.
bool named_as_time(const std::string& name);

// A unit of times since 1970.
struct EpochUnit {
  double per_second;
  const char* name;  // "seconds"
};

// The unit in which numbers from `least` to `most` are times of the years 1995 to 2099, if the name says that they are
// times, and names no other unit. Otherwise null. Other counts, such as 100 ns since 1601, lie outside these years.
const EpochUnit* epoch_unit(const std::string& name, double least, double most);

// The unit of a column of numbers that are times; null if they are none.
const EpochUnit* epoch_unit(const ColumnSeen& c);

// A comment on numbers in a column named as a time: as which times they are read, or why they are not. Else empty.
std::string epoch_note(const ColumnSeen& c);

}  // namespace tessera::cli
