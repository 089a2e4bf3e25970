// Collects the values of one column of a block from fields.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

// Thrown for a field that does not fit; the sentence begins with the field: "\"x\" is no number".
class WrongField : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class CsvColumn {
 public:
  // `missing_words`: words such as "NA", "null" and "?" are missing values if a number is wanted.
  explicit CsvColumn(const tessera::sdk::ReaderWant& want, bool missing_words = false)
      : want_(want), missing_words_(missing_words && want.type != TSR_READER_TEXT) {}

  const tessera::sdk::ReaderWant& want() const { return want_; }
  void start_block(int64_t rows);
  // Takes the field that begins at `at`, in a record without quotes; returns its end.
  const char* take(const char* at, const char* end, char delimiter);
  // Takes a whole field. Throws WrongField.
  void add(std::string_view field);
  tsr_reader_values values() const;
  // Another column that wants the same fields; null if there is none.
  CsvColumn* also = nullptr;

 private:
  void add_missing();
  void add_value(std::string_view text);
  void add_real(double value);
  void add_list(std::string_view field);
  void add_item(std::string_view item, std::string_view weight, bool quoted);
  size_t count() const;  // number of values
  void end_row(bool present);

  tessera::sdk::ReaderWant want_;
  bool missing_words_;
  std::vector<float> floats_, weights_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_, texts_, lists_;
  std::vector<char> bytes_;
  std::vector<uint8_t> present_;
  bool all_present_ = true;
};

}  // namespace tessera_readers
