// The model of a job and how it is trained: what fits the number of rows and of columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/columns_toml.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct ModelFacts {
  int64_t rows = 0;            // of the files
  double test_fraction = 0.1;  // of the rows, for the test
};

// Batch and epochs of [data], below its reader and path.
std::string data_sizes(const ModelFacts& facts);
// [validation], optimizers, schedule, [[layer]]s and [[head]]s, one for each label.
std::string model_toml(const std::vector<ColumnSeen>& columns, const Labels& labels, const ColumnsToml& features,
                       const ModelFacts& facts, bool in_time);

}  // namespace tessera::cli
