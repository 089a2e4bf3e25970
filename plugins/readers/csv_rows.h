// Parses the records of a CSV file into rows: knows the header's names, and reports the place of an invalid field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csv_column.h"
#include "csv_records.h"
#include "record_reader.h"

namespace tessera_readers {

// The record that names the columns: the first one after blank lines and Excel's line `sep=;`. Fails if the file has
// none, and if `sep=` names another delimiter than the reader's.
std::string_view header_of(RecordReader& records, CsvFormat format);

class CsvRows {
 public:
  // `header` is the first record; `file` is the name used in messages.
  CsvRows(std::string file, CsvFormat format, std::string_view header);

  const std::vector<std::string>& header() const { return header_; }
  bool is_blank(std::string_view record) const {
    return header_.size() > 1 && record.find_first_not_of(' ') == std::string_view::npos;
  }
  // Throws Failure(TSR_NOT_FOUND) if there is no column of that name.
  void require(const std::string& column) const;
  // Sets the columns that parse() fills; require() was called for each.
  void direct(std::vector<CsvColumn>& columns);
  // Parses row `row`, counted from 1. `quoted`: the record may contain a quote.
  void parse(int64_t row, std::string_view record, bool quoted);

 private:
  void parse_plain(int64_t row, std::string_view record);
  void parse_quoted(int64_t row, std::string_view record);
  const char* other_delimiter() const;  // a hint for messages
  [[noreturn]] void wrong(int64_t row, size_t column, const char* what) const;
  [[noreturn]] void wrong_length(int64_t row, std::string_view record);

  std::string file_;
  CsvFormat format_;
  std::vector<std::string> header_;
  std::unordered_map<std::string, size_t> places_;  // field index by name in the header
  std::vector<CsvColumn*> targets_;                 // per field; null if nobody wants it
  std::string scratch_;
};

}  // namespace tessera_readers
