// Collects the values of one column of a block from Arrow arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "columnar/arrow_type.h"
#include "columnar/c_data.h"
#include "columnar/cell.h"
#include "csv_column.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

// Thrown for a value that does not fit: "2.5 is no whole number". `row` counts from the block's first.
class WrongValue : public std::runtime_error {
 public:
  WrongValue(int64_t row, const std::string& what) : std::runtime_error(what), row_(row) {}
  int64_t row() const { return row_; }

 private:
  int64_t row_;
};

// The reason why a column of this type cannot be read as wanted: "holds texts, but whole numbers are wanted"; empty if
// it can.
std::string misfit(const tessera::sdk::ReaderWant& want, const ArrowType& type);

class ArrowColumn {
 public:
  // The type must have no misfit(). Texts of which lists or numbers are wanted are parsed as in CSV.
  ArrowColumn(const tessera::sdk::ReaderWant& want, const ArrowType& type);

  void start_block(int64_t rows);
  // Appends rows [first, first + rows) of an array of the type. After WrongValue, a new block begins.
  void append(const ArrowArray& array, int64_t first, int64_t rows);
  // Appends rows that all have the same text, which is read as a number if one is wanted; without a text, they have no
  // value.
  void append_same(const std::optional<std::string>& text, int64_t rows);
  // Valid until the array is released, or until the next start_block().
  tsr_reader_values values();

 private:
  // Takes elements [begin, end) of an array, without its own offset.
  void append_lists(const ArrowArray& array, int64_t first, int64_t rows);
  void append_plain_lists(const ArrowArray& array, int64_t first, int64_t rows);
  // Pointer to the values if they can be used unchanged; otherwise null.
  const void* as_they_lie(const ArrowArray& array, int64_t begin, int64_t end) const;
  template <class Float>
  bool append_floats(std::vector<Float>& floats, const ArrowArray& array, int64_t begin, int64_t end);
  void append_items(const ArrowArray& items, int64_t begin, int64_t end);
  void append_values(const ArrowArray& array, int64_t begin, int64_t end);
  void parse_texts(int64_t rows);
  void append_numbers(const ArrowArray& array, int64_t begin, int64_t end);
  void append_weights(const ArrowArray& array, int64_t begin, int64_t end);
  void append_texts(const ArrowArray& array, int64_t begin, int64_t end);
  template <class Offset>
  void append_all_texts(const Offset* offsets, const ArrowArray& array, int64_t begin, int64_t end);
  Cell value_at(const ArrowArray& array, const ArrowValues& type, int64_t i, int64_t value) const;
  void append_cell(const Cell& cell);
  void append_digits(const std::string& digits);
  // Appends a number as it is stored; a duration becomes seconds.
  template <class V>
  void append_stored(V value);
  template <class V>
  void append_number(V value);
  template <class V>
  void append_integer(V value);
  void append_float(double value);
  void append_text(std::string_view text);  // an empty one is a missing value, as in CSV
  void append_null();

  int64_t count() const;  // number of values so far
  [[noreturn]] void wrong(int64_t value, const std::string& what) const;

  tessera::sdk::ReaderWant want_;  // if texts are parsed, this is for one text in each row
  ArrowType type_;
  std::optional<CsvColumn> parsed_;  // the lists or numbers of texts
  int64_t rows_ = 0;                 // number of rows that have been parsed
  int64_t block_rows_ = 0;
  const void* lent_ = nullptr;  // the block's values in the only array that has them; null if they are copied below
  std::vector<float> floats_, weights_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_, texts_, lists_;
  std::vector<char> bytes_;
  std::string word_;              // word of one value
  std::vector<uint8_t> present_;  // for the first values; empty: all are present
};

}  // namespace tessera_readers
