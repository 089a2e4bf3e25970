// Looks at the rows of files once, and profiles their columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/column_look.h"
#include "tessera/runtime.h"

namespace tessera::cli {

struct LookOptions {
  std::string path;
  // Candidate reader plugins. The first is used, or, if the rows do not fit it, the one that finds most columns.
  std::vector<std::string> readers;
  bool text = false;       // the readers have an encoding option
  int64_t rows = 0;        // rows to look at, in blocks spread over the files; 0: all
  bool keep_rows = false;  // fill FilesSeen::row_hashes
  bool progress = false;   // draw a line on standard error
};

struct FilesSeen {
  std::vector<ColumnSeen> columns;   // those that no reader reads come last
  int64_t rows = 0, of = 0;          // rows that were looked at, and rows in the files
  double distinct_rows = 0;          // an estimate, of the rows that were looked at
  std::vector<uint64_t> row_hashes;  // ascending; empty for more rows than fit into memory
  std::string reader;                // that fits, with its encoding
  std::string missing_words_reader;  // the same, with words such as NA as missing numbers; empty: it has no such option
};

FilesSeen look_at_files(const Runtime& runtime, const LookOptions& options);

}  // namespace tessera::cli
