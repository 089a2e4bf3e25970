// What the columns of files seem to be, from some of their rows, as the config of a job on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/runtime.h"

namespace tessera::cli {

struct DescribeOptions {
  std::string path;
  // Reader parts: the first one, or where the files' rows do not fit it, the one that finds most columns.
  std::vector<std::string> readers;
  std::string label;     // a column's name; empty: what seems to be it
  int64_t rows = 50000;  // to look at, from blocks all over the files
};

// The job's TOML, with what was seen of each column as comments. kInvalidArgument: no column can be the label.
std::string describe_files(const Runtime& runtime, const DescribeOptions& options);

}  // namespace tessera::cli
