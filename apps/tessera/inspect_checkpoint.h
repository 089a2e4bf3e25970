// tessera model inspect of a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/row_figures.h"

namespace tessera::cli {

bool is_checkpoint(const std::string& directory);  // or holds some
// Prints what the newest one holds. `verify`: reads all of it. kDataLoss: damaged; the file is named.
void inspect_checkpoint(const std::string& directory, bool verify, bool as_json);

// "254 of 300 rows in use (85 %), ...", of so many rows.
std::string in_words(const RowFigures& figures, int64_t rows);

}  // namespace tessera::cli
