// The order of files' rows by the values of a column: data.order_by, and data.test = "time:COLUMN".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/reader_component.h"
#include "data/sample_stream.h"

namespace tessera::data {

// Puts `pieces` into the order of the column's values: numbers, or texts byte by byte, as those of ISO 8601 times are.
// Equal values stay in the order of the files. `keep`: the samples will be in memory; returns the row, among those of
// the pieces as they were, of each place, and leaves the pieces. Otherwise pieces alone are moved, and
// kInvalidArgument names the row where those do not do: values go down inside a piece, or two pieces overlap. Selects
// the column. kInvalidArgument: a row without a value, or one that is no number where those before are.
struct OrderColumn {
  const char* key;          // of the config, for errors
  std::string name;         // of the column
  bool only_times = false;  // other texts than times are refused
};
std::vector<uint32_t> order_rows(ReaderComponent& part, const OrderColumn& column, bool keep,
                                 std::vector<BlockPiece>& pieces);

}  // namespace tessera::data
