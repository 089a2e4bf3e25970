// Events of requests and messages, as columns of texts in the form of readers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/row_columns.h"
#include "tessera/abi/draft/reader.h"

namespace tessera::serve {

class EventRows {
 public:
  explicit EventRows(const std::vector<std::string>& columns) : columns_(columns.size()) {
    for (size_t k = 0; k < columns.size(); ++k) columns_[k].name = columns[k];
  }

  void clear();
  void begin();  // the next event, which has no values yet
  // A value of the event; false: no column has this name. kInvalidArgument: the event has one already.
  bool set(std::string_view column, const RowValue& value);
  // kInvalidArgument: the event lacks a column from number `first` on; a missing value counts as one.
  void end(size_t first) const;
  bool has_column(std::string_view name) const;
  bool has(std::string_view name) const;  // the newest event has it
  int64_t size() const { return rows_; }
  std::string names() const;                      // of the columns, for messages
  std::vector<tsr_reader_values> values() const;  // valid until the next change

 private:
  struct Column {
    std::string name, text;
    std::vector<int64_t> ends = {0};
    std::vector<uint8_t> present = {};
    bool given = false;  // in the newest event
  };
  std::vector<Column> columns_;
  int64_t rows_ = 0;
};

// The text of a value as files have it; empty: missing.
std::string text_of(const RowValue& value);

}  // namespace tessera::serve
