// Rows of a CSV file, out of its records: what its header names, and where a field is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csv_column.h"
#include "csv_records.h"

namespace tessera_readers {

class CsvRows {
 public:
  // `header`: the first record; `file`: its name in sentences.
  CsvRows(std::string file, CsvFormat format, std::string_view header);

  const std::vector<std::string>& header() const { return header_; }
  bool is_blank(std::string_view record) const { return record.empty() && header_.size() > 1; }
  // Failure(TSR_NOT_FOUND): there is none of that name.
  void require(const std::string& column) const;
  // Where parse() puts fields: require() was asked for each.
  void direct(std::vector<CsvColumn>& columns);
  // Row `row`, from 1. `quoted`: there may be a quote in the record.
  void parse(int64_t row, std::string_view record, bool quoted);

 private:
  void parse_plain(int64_t row, std::string_view record);
  void parse_quoted(int64_t row, std::string_view record);
  const char* other_delimiter() const;  // a hint for sentences
  [[noreturn]] void wrong(int64_t row, size_t column, const char* what) const;
  [[noreturn]] void wrong_length(int64_t row, std::string_view record);

  std::string file_;
  CsvFormat format_;
  std::vector<std::string> header_;
  std::unordered_map<std::string, size_t> places_;  // in the header, by name
  std::vector<CsvColumn*> targets_;                 // by field; null: nobody wants it
  std::string scratch_;
};

}  // namespace tessera_readers
