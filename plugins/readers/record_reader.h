// The records of one file, one after the other, through a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csv_records.h"
#include "text_file.h"

namespace tessera_readers {

// A record without its line end, whose `line` is LF or the end of the file.
std::string_view record_of(const char* begin, const char* line);

class RecordReader {
 public:
  RecordReader(const std::string& path, CsvFormat format);

  const std::string& path() const { return file_.path(); }
  bool compressed() const { return file_.compressed(); }
  int64_t offset() const { return base_ + static_cast<int64_t>(begin_); }  // of the next record, in the text
  // False at the end. Valid until the next call. `rows_before`, for errors: how many rows came before.
  bool next(std::string_view& record, int64_t rows_before);
  bool quoted() const { return ends_.quoted(); }
  // Whether next() need not wait, for a record or the end, after at most about so long.
  bool wait(double seconds, int64_t rows_before);

 private:
  void fill(int64_t rows_before);

  TextFile file_;
  RecordEnds ends_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t base_ = 0;  // in the text, of the buffer
  bool at_end_ = false;
  std::string damage_;  // behind the buffer
};

}  // namespace tessera_readers
