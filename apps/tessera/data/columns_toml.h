// The [[column]]s of a job, with what was seen of each as comments.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/decisions.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct ColumnsToml {
  std::string text;
  std::vector<std::string> tables;  // columns of ids, of which each is a table
  size_t dense = 0;                 // columns of numbers
  bool missing_words = false;       // a number has words such as NA, which the reader must take for none
};

ColumnsToml columns_toml(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                         const Labels& labels);

// "943 different, 1 to 943, 3 of 1000 missing": what was seen of a column.
std::string summary(const ColumnSeen& column);

}  // namespace tessera::cli
