// The values of one column of a block, out of Arrow arrays.
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
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

// A value that is not what is wanted: "2.5 is no whole number". `row` counts from the block's first.
class WrongValue : public std::runtime_error {
 public:
  WrongValue(int64_t row, const std::string& what) : std::runtime_error(what), row_(row) {}
  int64_t row() const { return row_; }

 private:
  int64_t row_;
};

// Why a column of the type cannot be read as wanted: "holds texts, but whole numbers are wanted"; empty: it can.
std::string misfit(const tessera::sdk::ReaderWant& want, const ArrowType& type);

class ArrowColumn {
 public:
  // For a type that has no misfit with what is wanted.
  ArrowColumn(const tessera::sdk::ReaderWant& want, const ArrowType& type) : want_(want), type_(type) {}

  void start_block(int64_t rows);
  // Rows [first, first + rows) of an array of the type. Throws WrongValue; a new block begins then.
  void append(const ArrowArray& array, int64_t first, int64_t rows);
  // Rows that have one text, which is read as a number where one is wanted; empty: they have no value.
  void append_same(const std::optional<std::string>& text, int64_t rows);
  // Valid until the array is released, or the next start_block().
  tsr_reader_values values();

 private:
  // Elements [begin, end) of an array, its own offset not counted.
  void append_lists(const ArrowArray& array, int64_t first, int64_t rows);
  void append_plain_lists(const ArrowArray& array, int64_t first, int64_t rows);
  // Where they lie, if they are what is wanted without a change; null: they are not.
  const void* as_they_lie(const ArrowArray& array, int64_t begin, int64_t end) const;
  template <class Float>
  bool append_floats(std::vector<Float>& floats, const ArrowArray& array, int64_t begin, int64_t end);
  void append_items(const ArrowArray& items, int64_t begin, int64_t end);
  void append_values(const ArrowArray& array, int64_t begin, int64_t end);
  void append_numbers(const ArrowArray& array, int64_t begin, int64_t end);
  void append_weights(const ArrowArray& array, int64_t begin, int64_t end);
  void append_texts(const ArrowArray& array, int64_t begin, int64_t end);
  template <class Offset>
  void append_all_texts(const Offset* offsets, const ArrowArray& array, int64_t begin, int64_t end);
  Cell value_at(const ArrowArray& array, const ArrowValues& type, int64_t i, int64_t value) const;
  void append_cell(const Cell& cell);
  void append_digits(const std::string& digits);
  template <class V>
  void append_number(V value);
  template <class V>
  void append_integer(V value);
  void append_float(double value);
  void append_text(std::string_view text);
  void append_null();

  int64_t count() const;  // of values so far
  [[noreturn]] void wrong(int64_t value, const std::string& what) const;

  tessera::sdk::ReaderWant want_;
  ArrowType type_;
  int64_t block_rows_ = 0;
  const void* lent_ = nullptr;  // the block's values in the one array that has them; null: they are copied below
  std::vector<float> floats_, weights_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_, texts_, lists_;
  std::vector<char> bytes_;
  std::string word_;              // of one value
  std::vector<uint8_t> present_;  // of the first values; empty: all are
};

}  // namespace tessera_readers
