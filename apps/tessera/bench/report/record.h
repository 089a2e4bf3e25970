// The lines of a session, from whichever of its processes prints them, and how the terminal shows the closing ones.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// A file in memory that forked processes share.
class Record {
 public:
  Record();  // errors: kUnavailable
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  int fd() const { return fd_; }
  std::vector<Line> lines() const;

 private:
  int fd_;
};

// Writes in any process that has the descriptor.
void append(int record, const Line& line);

// Rows with one header and aligned columns; "" for none. Lines with other columns start a table of their own.
std::string table_text(const std::vector<Line>& rows);
// The machine that a run tells of, and what it ran there: "AMD EPYC, 2 processors, 24 GiB, avx512, ... ".
std::string machine_text(const Line& run);
// A run's sentences: machine and noise.
std::string run_text(const Line& run);
// The result of compare(), and the sentences of its last line.
std::string comparison_text(const Line& summary);
std::string changes_text(const std::vector<Line>& changes);

}  // namespace tessera::cli
