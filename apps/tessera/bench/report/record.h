// Keeps the lines of a session from all of its processes, and formats the closing lines for the terminal.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// A file in memory that forked processes share.
class Record {
 public:
  Record();  // throws kUnavailable
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  int fd() const { return fd_; }
  std::vector<Line> lines() const;

 private:
  int fd_;
};

// Appends a line; works in any process that has the descriptor.
void append(int record, const Line& line);

// Rows with one header and aligned columns; "" if there are none. Lines with other columns start a new table.
std::string table_text(const std::vector<Line>& rows);
// The machine of a run: "AMD EPYC, 2 processors, 24 GiB, avx512, ... ".
std::string machine_text(const Line& run);
// Sentences about a run: its machine and its noise.
std::string run_text(const Line& run);
// The result of compare() as sentences, from its last line.
std::string comparison_text(const Line& summary);
std::string changes_text(const std::vector<Line>& changes);

}  // namespace tessera::cli
