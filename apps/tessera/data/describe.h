// What the columns of files seem to be, from some of their rows, as the config of a job on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/runtime.h"

namespace tessera::cli {

struct DescribeOptions {
  std::string path, reader;
  std::string label;     // a column's name; empty: what seems to be it
  int64_t rows = 50000;  // to look at, from blocks all over the files
};

// What was seen of a column's fields.
struct ColumnSeen {
  std::string name;
  int64_t fields = 0, missing = 0, numbers = 0, whole = 0;
  double least = 0, most = 0, sum = 0;
  std::vector<std::string> distinct;  // in ascending order; some ten thousand at most
  bool more = false;                  // there are others
  size_t ids = 0, once = 0;           // distinct fields, or items of the list in text, and how many came once
  bool list = false;                  // of a format that has lists: fields are their values
  char separator = 0;                 // of a list in text; 0: it seems to be none
};

// The job's TOML, with what was seen of each column as comments. kInvalidArgument: no column can be the label.
std::string describe_files(const Runtime& runtime, const DescribeOptions& options);

// Of columns that were seen, beside each other. What describe_files() writes behind the header.
std::string columns_toml(const std::vector<ColumnSeen>& columns, const std::string& label);

}  // namespace tessera::cli
