// Orders the files' rows by a column: data.order_by, and data.test = "time:COLUMN".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/reader_component.h"
#include "data/sample_stream.h"

namespace tessera::data {

// Sorts `pieces` by the column's values: numbers, or texts byte by byte, which suits ISO 8601 times. Equal values stay
// in file order. With `keep` the samples will be in memory: it returns the sorted rows, numbered over all pieces, and
// leaves the pieces. Without `keep` it can only move whole pieces. kInvalidArgument then names the row where that
// fails: values decrease inside a piece, or two pieces overlap. kInvalidArgument also: a row has no value, or no number
// though earlier rows have one, or a date that would not sort as text. Selects the column.
struct OrderColumn {
  const char* key;          // the config's key, for errors
  std::string name;         // of the column
  std::string time_format;  // of its times; empty: ISO 8601
  bool as_time = false;     // numbers are times since 1970, each in the unit that its size tells
  bool only_times = false;  // refuse texts that are not times
};
std::vector<uint32_t> order_rows(ReaderComponent& part, const OrderColumn& column, bool keep,
                                 std::vector<BlockPiece>& pieces);

}  // namespace tessera::data
