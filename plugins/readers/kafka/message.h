// Rows out of messages: JSON objects by the names of columns, or the fields of a CSV record in an order that is given.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csv_column.h"
#include "csv_records.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

class MessageRows {
 public:
  // `fields`: of CSV; empty: messages are JSON objects.
  MessageRows(std::vector<std::string> fields, char delimiter) : fields_(std::move(fields)), format_{delimiter} {}

  bool json() const { return fields_.empty(); }
  const std::vector<std::string>& fields() const { return fields_; }
  // `time`: a column of event times, as text; empty: none. Failure(TSR_NOT_FOUND): none of the fields.
  void select(std::span<const tessera::sdk::ReaderWant> wants, const std::string& time);

  void start();
  // One row. Throws WrongField, with the column where it is of one; what it has added of the row stays: start() anew.
  void add(std::string_view message);
  // Of the rows since start(), one for each want.
  std::vector<tsr_reader_values> values() const;
  const std::vector<double>& times() const { return times_; }  // where there is a column of them

 private:
  void split_json(std::string_view message);
  void split_csv(std::string_view message);
  void take(size_t column, std::string_view field);

  std::vector<std::string> fields_;
  CsvFormat format_;
  std::string time_;
  std::vector<CsvColumn> columns_;
  std::vector<std::string> texts_;  // of a row, by column, and its time behind them
  std::string scratch_;
  std::vector<double> times_;
};

}  // namespace tessera_readers
