// A description of files: the config of a job that trains on their columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/runtime.h"

namespace tessera::cli {

struct DescribeOptions {
  std::string path;
  // Reader plugins: the first one, or if the files' rows do not fit it, the one that finds most columns.
  std::vector<std::string> readers;
  bool text = false;      // the readers take an encoding
  std::string label;      // columns' names with commas between them; empty: what seems to be it
  int64_t rows = 0;       // to look at, from blocks all over the files; 0: all
  bool progress = false;  // draw a line on standard error
};

struct Description {
  std::string job;   // TOML, with what was seen of each column as comments
  std::string page;  // the same as HTML
};

// kInvalidArgument: no column can be the label.
Description describe_files(const Runtime& runtime, const DescribeOptions& options);

}  // namespace tessera::cli
