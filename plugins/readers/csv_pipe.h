// Rows of a CSV file that can be read only once, as they arrive: standard input, or a pipe.
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
  // Waits for the header. `path` "-" is standard input.
  CsvPipe(const std::string& path, CsvFormat format);

  CsvRows& rows() { return rows_; }
  const char* where() const { return records_.path().c_str(); }
  int64_t taken() const { return row_; }
  bool ended() const { return ended_; }
  // Starts a block in `columns`, which rows() feeds, and adds the available rows, at most `most`. Waits at most about
  // `wait_s` for the first one. Rows before an invalid one are returned first; the next call then fails.
  int64_t next(int64_t most, double wait_s, std::vector<CsvColumn>& columns);

 private:
  bool take(double wait_s);

  RecordReader records_;
  CsvRows rows_;
  int64_t row_ = 0;
  bool ended_ = false;
  std::exception_ptr wrong_;  // thrown after the rows that were returned
};

}  // namespace tessera_readers
