// Parses messages into rows: JSON objects by column names, or fields of a CSV record in a given order.
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
  // `fields` are the names of CSV fields; empty: messages are JSON objects.
  MessageRows(std::vector<std::string> fields, char delimiter) : fields_(std::move(fields)), format_{delimiter} {}

  bool json() const { return fields_.empty(); }
  const std::vector<std::string>& fields() const { return fields_; }
  // `time` is a text column with event times; empty: none. Throws Failure(TSR_NOT_FOUND) if it is not a field.
  void select(std::span<const tessera::sdk::ReaderWant> wants, const std::string& time);

  void start();
  // Adds one row. Throws WrongField, with the column if it has one. The columns then hold a part of the row: call
  // start().
  void add(std::string_view message);
  // The values of the rows since start(), one entry per want.
  std::vector<tsr_reader_values> values() const;
  const std::vector<double>& times() const { return times_; }  // empty without such a column

 private:
  void split_json(std::string_view message);
  void split_csv(std::string_view message);
  void take(size_t column, std::string_view field);

  std::vector<std::string> fields_;
  CsvFormat format_;
  std::string time_;
  std::vector<CsvColumn> columns_;
  std::vector<std::string> texts_;  // of a row, per column, followed by its time
  std::string scratch_;
  std::vector<double> times_;
};

}  // namespace tessera_readers
