// Start values of tables from files of vectors.
#pragma once

#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/trainer.h"

namespace tessera {

// kInvalidArgument: a table with `start` has no rows before training.
void check_start(const std::vector<TableConfig>& tables);

// Sets rows of tables with `start` to the vectors of that .npy file. FILE.ids.txt has the id of each vector in a line,
// as the data have it; without that file a vector's number is its row. `encoding`: Dataset::encoding. Returns a
// sentence for each table. kNotFound, kInvalidArgument: no such file, another width, or no id that the table has.
// Collective.
std::vector<std::string> set_start_vectors(const std::vector<TableConfig>& tables, const std::string& encoding,
                                           ModelTrainer& trainer);

}  // namespace tessera
