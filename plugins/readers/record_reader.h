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

// The record that ends at `line`, which is LF or the end of the file, without its line end.
std::string_view record_of(const char* begin, const char* line);

class RecordReader {
 public:
  RecordReader(const std::string& path, CsvFormat format);

  const std::string& path() const { return file_.path(); }
  bool compressed() const { return file_.compressed(); }
  int64_t offset() const { return base_ + static_cast<int64_t>(begin_); }  // of the next record, in the text
  // Returns false at the end. Valid until the next call. `rows_before` is the number of earlier rows, for errors.
  bool next(std::string_view& record, int64_t rows_before);
  bool quoted() const { return ends_.quoted(); }
  // True if next() would not wait for a record or the end; waits at most about this long.
  bool wait(double seconds, int64_t rows_before);

 private:
  void fill(int64_t rows_before);

  TextFile file_;
  RecordEnds ends_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t base_ = 0;  // start of the buffer in the text
  bool at_end_ = false;
  std::string damage_;  // damage after the buffer
};

}  // namespace tessera_readers
