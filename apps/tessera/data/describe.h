// Describes files by the config of a job that trains on their columns.
#pragma once

#include <string>
#include <vector>

#include "data/file_look.h"
#include "page/page_file.h"
#include "tessera/runtime.h"

namespace tessera::cli {

struct DescribeOptions : LookOptions {
  std::string label;  // names of label columns, separated by commas; empty: guess
};

struct Description {
  std::string job;    // TOML, with what was seen of each column as comments
  PageParts page;     // the same, with histograms
  std::string guess;  // one sentence if nobody named the label, otherwise empty
};

// Throws kInvalidArgument if no column can be the label.
Description describe_files(const Runtime& runtime, const DescribeOptions& options);

}  // namespace tessera::cli
