// Rows of a CSV file that can be read once, as they come: standard input, a pipe.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "csv_rows.h"
#include "record_reader.h"

namespace tessera_readers {

class CsvPipe {
 public:
  // Waits for the header. `path`: "-" is standard input.
  CsvPipe(const std::string& path, CsvFormat format);

  CsvRows& rows() { return rows_; }
  const char* where() const { return records_.path().c_str(); }
  int64_t taken() const { return row_; }
  bool ended() const { return ended_; }
  // Starts a block in `columns`, which rows() directs to, and adds the rows that are there, at most `most`; waits at
  // most about `wait_s` for the first. Rows before a wrong one are given by themselves: the next call fails.
  int64_t next(int64_t most, double wait_s, std::vector<CsvColumn>& columns);

 private:
  bool take(double wait_s);

  RecordReader records_;
  CsvRows rows_;
  int64_t row_ = 0;
  bool ended_ = false;
  std::exception_ptr wrong_;  // behind the rows that were given
};

}  // namespace tessera_readers
