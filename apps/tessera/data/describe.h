// Describes files by the config of a job that trains on their columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/runtime.h"

namespace tessera::cli {

struct DescribeOptions {
  std::string path;
  // Candidate reader plugins. The first is used, or, if the rows do not fit it, the one that finds most columns.
  std::vector<std::string> readers;
  bool text = false;      // the readers have an encoding option
  std::string label;      // names of label columns, separated by commas; empty: guess
  int64_t rows = 0;       // rows to look at, in blocks spread over the files; 0: all
  bool progress = false;  // draw a line on standard error
};

struct Description {
  std::string job;    // TOML, with what was seen of each column as comments
  std::string page;   // the same as HTML
  std::string guess;  // one sentence if nobody named the label, otherwise empty
};

// Throws kInvalidArgument if no column can be the label.
Description describe_files(const Runtime& runtime, const DescribeOptions& options);

}  // namespace tessera::cli
