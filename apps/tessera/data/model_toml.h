// Chooses the model of a job and its training, to fit the number of rows and columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/columns_toml.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct ModelFacts {
  int64_t rows = 0;            // rows in the files
  double test_fraction = 0.1;  // share of the rows used for the test
};

// Batch and epochs of [data], for the lines after its reader and path.
std::string data_sizes(const ModelFacts& facts);
// [validation], optimizers, schedule, [[layer]]s and [[head]]s, one head per label.
std::string model_toml(const std::vector<ColumnSeen>& columns, const Labels& labels, const ColumnsToml& features,
                       const ModelFacts& facts, bool in_time);

}  // namespace tessera::cli
