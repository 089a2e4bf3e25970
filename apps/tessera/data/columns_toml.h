// What columns seem to be, as the [[column]]s of a job and a model that takes them.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"

namespace tessera::cli {

struct ColumnsToml {
  std::string text;
  std::string time;            // the column of times; empty: there is none
  bool missing_words = false;  // a dense column has words for no number, which the reader must take as such
};

// `label`: a column's name; empty: what seems to be it. kInvalidArgument: no column can be the label.
ColumnsToml columns_toml(const std::vector<ColumnSeen>& columns, const std::string& label);

// TOML's strings have JSON's escapes.
std::string quoted(const std::string& text);

}  // namespace tessera::cli
