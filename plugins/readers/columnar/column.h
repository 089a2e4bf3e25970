// The values of one column of a block, out of Arrow arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "columnar/c_data.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

// What the values of an Arrow type are to a reader.
struct ArrowType {
  // How they lie; of dictionaries: those of the dictionary.
  enum class Storage {
    kBool,
    kInt8,
    kUInt8,
    kInt16,
    kUInt16,
    kInt32,
    kUInt32,
    kInt64,
    kUInt64,
    kFloat16,
    kFloat32,
    kFloat64,
    kText,       // int32 offsets
    kLargeText,  // int64 offsets
    kFixedText   // of `width` bytes
  };
  enum class List { kNone, kList, kLargeList, kFixedList };  // a map is a list of pairs

  Storage storage = Storage::kBool;
  std::optional<Storage> weight;   // list of pairs: that of the second
  std::optional<Storage> indices;  // dictionary: that of the indices
  List list = List::kNone;
  int64_t width = 0, list_size = 0;

  bool is_text() const { return storage >= Storage::kText; }
  bool is_float() const { return storage >= Storage::kFloat16 && storage <= Storage::kFloat64; }
  // Of a column: none where nothing here reads it.
  static std::optional<ArrowType> of(const ArrowSchema& schema);
};

// A value that is not what is wanted: "2.5 is no whole number". `row` counts from the block's first.
class WrongValue : public std::runtime_error {
 public:
  WrongValue(int64_t row, const std::string& what) : std::runtime_error(what), row_(row) {}
  int64_t row() const { return row_; }

 private:
  int64_t row_;
};

class ArrowColumn {
 public:
  // Failure(TSR_INVALID_ARGUMENT), beginning with `file`: what the column holds is not what is wanted.
  ArrowColumn(const tessera::sdk::ReaderWant& want, const ArrowType& type, const std::string& file);

  void start_block(int64_t rows);
  // Rows [first, first + rows) of an array of the type. Throws WrongValue; a new block begins then.
  void append(const ArrowArray& array, int64_t first, int64_t rows);
  // Valid until the array is released, or the next start_block().
  tsr_reader_values values();

 private:
  // Elements [begin, end) of an array, its own offset not counted.
  void append_lists(const ArrowArray& array, int64_t first, int64_t rows);
  // Where they lie, if they are what is wanted without a change; null: they are not.
  const void* as_they_lie(const ArrowArray& array, int64_t begin, int64_t end) const;
  bool append_floats(const ArrowArray& array, int64_t begin, int64_t end);
  void append_items(const ArrowArray& items, int64_t begin, int64_t end);
  void append_values(const ArrowArray& array, int64_t begin, int64_t end);
  void append_weights(const ArrowArray& array, int64_t begin, int64_t end);
  void append_texts(const ArrowArray& array, int64_t begin, int64_t end);
  template <class Offset>
  void append_all_texts(const Offset* offsets, const ArrowArray& array, int64_t begin, int64_t end);
  void append_from_dictionary(const ArrowArray& array, int64_t begin, int64_t end);
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
  std::vector<int64_t> integers_, texts_, lists_;
  std::vector<char> bytes_;
  std::vector<uint8_t> present_;  // of the first values; empty: all are
};

}  // namespace tessera_readers
