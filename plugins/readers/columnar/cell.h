// One value of an Arrow array: finds it, and gives its number or its word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "columnar/arrow_type.h"
#include "columnar/c_data.h"
#include "tessera/sdk/half.h"

namespace tessera_readers {

// Represent the types bool and half, which C++ lacks in this layout.
struct Bit {};
struct Half {};

// Calls body(T()) with the C++ type of numbers with this storage; ignores other types.
template <class Body>
void with_storage(ArrowValues::Storage storage, const Body& body) {
  using Storage = ArrowValues::Storage;
  switch (storage) {
    case Storage::kBool:
      return body(Bit{});
    case Storage::kInt8:
      return body(int8_t{});
    case Storage::kUInt8:
      return body(uint8_t{});
    case Storage::kInt16:
      return body(int16_t{});
    case Storage::kUInt16:
      return body(uint16_t{});
    case Storage::kInt32:
      return body(int32_t{});
    case Storage::kUInt32:
      return body(uint32_t{});
    case Storage::kInt64:
      return body(int64_t{});
    case Storage::kUInt64:
      return body(uint64_t{});
    case Storage::kFloat16:
      return body(Half{});
    case Storage::kFloat32:
      return body(float{});
    case Storage::kFloat64:
      return body(double{});
    default:
      return;
  }
}

template <class T>
const T* buffer_of(const ArrowArray& array, int64_t i) {
  return static_cast<const T*>(array.buffers[i]);
}

inline bool bit_of(const uint8_t* bits, int64_t i) { return (bits[i >> 3] >> (i & 7) & 1) != 0; }

// The functions below take `i` without the array's offset. These two are for layouts with a bitmap of nulls.
inline bool is_valid(const ArrowArray& array, int64_t i) {
  const auto* bits = buffer_of<uint8_t>(array, 0);
  return bits == nullptr || bit_of(bits, i + array.offset);
}
inline bool has_nulls(const ArrowArray& array) { return array.null_count != 0 && array.buffers[0] != nullptr; }

template <class T>
auto number_of(const ArrowArray& array, int64_t i) {
  i += array.offset;
  if constexpr (std::is_same_v<T, Bit>)
    return static_cast<int8_t>(bit_of(buffer_of<uint8_t>(array, 1), i));
  else if constexpr (std::is_same_v<T, Half>)
    return tessera::sdk::half_to_float(buffer_of<uint16_t>(array, 1)[i]);
  else
    return buffer_of<T>(array, 1)[i];
}

// A value after unwrapping dictionaries and runs; without an array if it is missing.
struct Cell {
  const ArrowArray* array = nullptr;
  int64_t i = 0;
};

// Throws std::out_of_range, with a sentence, if an index is outside its dictionary.
Cell cell_of(const ArrowArray& array, const std::vector<ArrowValues::Wrap>& wraps, int64_t i);

std::string_view text_of(const ArrowArray& array, const ArrowValues& type, int64_t i);

// The digits of a decimal without trailing zeros: -12.5, 400, 0.
std::string decimal_digits(const ArrowArray& array, const ArrowValues& type, int64_t i);

// Appends the word of a value that is not null (tessera/sdk/values.h). Returns false and appends nothing for NaN or
// infinity, which count as missing. Throws std::out_of_range, with a sentence, for a time outside its day.
bool append_word_of(std::string& out, const ArrowArray& array, const ArrowValues& type, int64_t i);

}  // namespace tessera_readers
