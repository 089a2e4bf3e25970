// Implements tessera model inspect for a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/embedding_configs.h"

namespace tessera::cli {

bool is_checkpoint(const std::string& directory);  // true if the directory is a checkpoint or holds some
// Prints the content of the newest checkpoint; `verify` reads all of it. Throws kDataLoss, naming the file, if it is
// damaged.
void inspect_checkpoint(const std::string& directory, bool verify, bool as_json);

// Figures of a table with `rows` rows, in words: "254 of 300 rows in use (85 %), ...".
std::string in_words(const RowFigures& figures, int64_t rows);

}  // namespace tessera::cli
