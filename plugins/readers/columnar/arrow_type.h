// How a reader treats an Arrow type, and the type's name for messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "columnar/c_data.h"

namespace tessera_readers {

// The type of one value of a column, or of one item of its lists.
struct ArrowValues {
  enum class Storage {
    kNull,  // all values are missing
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
    kDecimal,    // an integer of `width` bytes, to be divided by 10^scale
    kText,       // int32 offsets
    kLargeText,  // int64 offsets
    kFixedText,  // of `width` bytes
    kTextView    // views into several buffers
  };
  // The meaning of a whole number. It decides how the word is written. As numbers, durations are seconds, because their
  // unit depends on the program that wrote the file; dates and times stay in their unit.
  enum class Meaning { kNumber, kDate, kTimeOfDay, kInstant, kDuration };
  // A layout around the values: an array of indices into a dictionary, or runs of equal values.
  struct Wrap {
    bool runs = false;
    Storage numbers = Storage::kInt32;  // type of the indices, or of the ends of the runs
  };

  std::vector<Wrap> wraps;  // outermost first
  Storage storage = Storage::kNull;
  Meaning meaning = Meaning::kNumber;
  int64_t per_second = 1;  // times and dates: units per second
  int64_t width = 0;
  int32_t scale = 0;

  bool is_text() const { return storage >= Storage::kText; }
  bool is_number() const { return storage >= Storage::kBool && storage <= Storage::kDecimal; }
  bool is_counted_time() const {  // as a number it depends on the unit
    return meaning == Meaning::kDate || meaning == Meaning::kTimeOfDay || meaning == Meaning::kInstant;
  }
  bool is_duration() const { return meaning == Meaning::kDuration; }
};

struct ArrowType {
  enum class List { kNone, kList, kLargeList, kFixedList, kListView, kLargeListView };  // a map is a list of pairs

  ArrowValues values;
  std::optional<ArrowValues> weight;  // for a list of pairs: type of the second of each pair
  List list = List::kNone;
  std::vector<ArrowValues::Wrap> list_wraps;  // around the lists themselves
  int64_t list_size = 0;                      // for kFixedList

  // True for the type null, which any type can represent.
  bool is_null() const { return list == List::kNone && values.storage == ArrowValues::Storage::kNull; }
  // Unset if no column of this type can be read.
  static std::optional<ArrowType> of(const ArrowSchema& schema);
};

// The type as pyarrow prints it: struct<a: int64, b: string>.
std::string arrow_type_name(const ArrowSchema& schema);

}  // namespace tessera_readers
