// The [[column]] sections of a job, with what was seen of each column as comments.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/decisions.h"
#include "data/label_choice.h"

namespace tessera::cli {

struct ColumnsToml {
  std::string text;
  std::vector<std::string> tables;   // id columns, each of which is a table
  std::vector<std::string> vectors;  // names of vector columns, which layers take
  size_t dense = 0;                  // number of dense columns
  bool missing_words = false;        // a dense column has words such as NA that the reader must treat as missing
};

ColumnsToml columns_toml(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                         const Labels& labels);

// Describes a column in short: "943 different, 1 to 943, 3 of 1000 missing".
std::string summary(const ColumnSeen& column);

}  // namespace tessera::cli
