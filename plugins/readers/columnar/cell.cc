#include "columnar/cell.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "tessera/sdk/values.h"

namespace tessera_readers {
namespace {

using Storage = ArrowValues::Storage;
using Meaning = ArrowValues::Meaning;

// A whole number stored as `storage`, which is an integer type.
int64_t integer_at(const ArrowArray& array, Storage storage, int64_t i) {
  int64_t out = 0;
  with_storage(storage, [&](auto stored) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): an index of 8 bits is a number as well
    out = static_cast<int64_t>(number_of<decltype(stored)>(array, i));
  });
  return out;
}

// The run with element `i` of an array of runs; the number of runs if there is none.
int64_t run_of(const ArrowArray& array, Storage ends, int64_t i) {
  const ArrowArray& all = *array.children[0];
  int64_t low = 0, high = all.length;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (integer_at(all, ends, middle) <= i + array.offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

std::string_view view_at(const ArrowArray& array, int64_t i) {
  constexpr int32_t kInline = 12;
  constexpr int64_t kSize = 16;
  const char* const view = buffer_of<char>(array, 1) + (i + array.offset) * kSize;
  std::array<int32_t, 4> fields{};  // length, 4 bytes of the text, buffer, offset
  std::memcpy(fields.data(), view, sizeof(fields));
  const auto length = static_cast<size_t>(fields[0]);
  if (fields[0] <= kInline) return {view + sizeof(int32_t), length};
  return {buffer_of<char>(array, 2 + int64_t{fields[2]}) + fields[3], length};
}

// An unsigned number of up to 256 bits, lowest digits first.
using Wide = std::array<uint32_t, 8>;

// Divides by 10^9 and returns the rest.
uint32_t take_nine_digits(Wide& number) {
  constexpr uint64_t kBillion = 1000000000;
  uint64_t rest = 0;
  for (size_t k = number.size(); k-- > 0;) {
    const uint64_t here = rest << 32 | number[k];
    number[k] = static_cast<uint32_t>(here / kBillion);
    rest = here % kBillion;
  }
  return static_cast<uint32_t>(rest);
}

// Replaces a two's complement of `bytes` bytes by its absolute value; returns true if it was negative.
bool take_sign(Wide& number, size_t bytes) {
  const size_t used = bytes / sizeof(uint32_t);
  if ((number[used - 1] >> 31) == 0) return false;
  uint64_t carry = 1;
  for (size_t k = 0; k < used; ++k) {
    carry += static_cast<uint32_t>(~number[k]);
    number[k] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  return true;
}

std::string digits_of(Wide number) {
  std::string reversed;
  while (std::any_of(number.begin(), number.end(), [](uint32_t part) { return part != 0; })) {
    uint32_t nine = take_nine_digits(number);
    for (int k = 0; k < 9; ++k, nine /= 10) reversed += static_cast<char>('0' + nine % 10);
  }
  while (!reversed.empty() && reversed.back() == '0') reversed.pop_back();
  return {reversed.rbegin(), reversed.rend()};
}

// Writes a count of fractions of a second as a time of day.
void append_time_of_day(std::string& out, int64_t ticks, int64_t per_second) {
  if (ticks < 0 || ticks >= 86400 * per_second)
    throw std::out_of_range(std::to_string(ticks) + " is not a time of a day: a day has " +
                            std::to_string(86400 * per_second) + " of these units");
  tessera::sdk::append_time_of_day_word(out, ticks * (1000000000 / per_second));
}

}  // namespace

Cell cell_of(const ArrowArray& array, const std::vector<ArrowValues::Wrap>& wraps, int64_t i) {
  const ArrowArray* at = &array;
  for (const ArrowValues::Wrap& wrap : wraps) {
    if (!wrap.runs && !is_valid(*at, i)) return {};
    const ArrowArray& values = wrap.runs ? *at->children[1] : *at->dictionary;
    const int64_t index = wrap.runs ? run_of(*at, wrap.numbers, i) : integer_at(*at, wrap.numbers, i);
    if (index < 0 || index >= values.length)
      throw std::out_of_range(wrap.runs ? "is past the last of " + std::to_string(values.length) + " runs"
                                        : "names value " + std::to_string(index) + " of a dictionary of " +
                                              std::to_string(values.length));
    at = &values;
    i = index;
  }
  return {at, i};
}

std::string_view text_of(const ArrowArray& array, const ArrowValues& type, int64_t i) {
  if (type.storage == Storage::kTextView) return view_at(array, i);
  i += array.offset;
  const auto between = [&](const auto* offsets) {
    return std::string_view(buffer_of<char>(array, 2) + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
  };
  if (type.storage == Storage::kText) return between(buffer_of<int32_t>(array, 1));
  if (type.storage == Storage::kLargeText) return between(buffer_of<int64_t>(array, 1));
  return {buffer_of<char>(array, 1) + i * type.width, static_cast<size_t>(type.width)};
}

std::string decimal_digits(const ArrowArray& array, const ArrowValues& type, int64_t i) {
  Wide number{};
  const auto bytes = static_cast<size_t>(type.width);
  std::memcpy(number.data(), buffer_of<char>(array, 1) + (i + array.offset) * type.width, bytes);
  const bool negative = take_sign(number, bytes);
  std::string digits = digits_of(number);
  if (digits.empty()) return "0";
  if (type.scale < 0) {
    digits.append(static_cast<size_t>(-int64_t{type.scale}), '0');
  } else if (type.scale > 0) {
    const auto scale = static_cast<size_t>(type.scale);
    if (digits.size() <= scale) digits.insert(0, scale + 1 - digits.size(), '0');
    digits.insert(digits.size() - scale, 1, '.');
    while (digits.back() == '0') digits.pop_back();
    if (digits.back() == '.') digits.pop_back();
  }
  return negative ? "-" + digits : digits;
}

bool append_word_of(std::string& out, const ArrowArray& array, const ArrowValues& type, int64_t i) {
  namespace sdk = tessera::sdk;
  if (type.is_text()) {
    out += text_of(array, type, i);
    return true;
  }
  if (type.storage == Storage::kDecimal) {
    out += decimal_digits(array, type, i);
    return true;
  }
  if (type.meaning != Meaning::kNumber) {
    const int64_t value = integer_at(array, type.storage, i);
    if (type.meaning == Meaning::kDate)
      sdk::append_date_word(out, value);
    else if (type.meaning == Meaning::kInstant)
      sdk::append_time_word(out, value, type.per_second);
    else if (type.meaning == Meaning::kTimeOfDay)
      append_time_of_day(out, value, type.per_second);
    else
      sdk::append_word(out, static_cast<double>(value) / static_cast<double>(type.per_second));
    return true;
  }
  bool finite = true;
  with_storage(type.storage, [&](auto stored) {
    using T = decltype(stored);
    const auto value = number_of<T>(array, i);
    if constexpr (std::is_same_v<T, Bit>)
      sdk::append_word(out, value != 0);
    else if constexpr (std::is_integral_v<T>)
      sdk::append_word(out, value);
    else if ((finite = std::isfinite(value)))
      sdk::append_word(out, static_cast<double>(value));
  });
  return finite;
}

}  // namespace tessera_readers
