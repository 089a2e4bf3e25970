#include "columnar/column.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "tessera/sdk/half.h"

namespace tessera_readers {
namespace {

using Storage = ArrowType::Storage;
using List = ArrowType::List;
using tessera::sdk::fail;

// How a bool and a half lie.
struct Bit {};
struct Half {};

// body(T()) of numbers that lie as T.
template <class Body>
void with_storage(Storage storage, const Body& body) {
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
const T* buffer(const ArrowArray& array, int64_t i) {
  return static_cast<const T*>(array.buffers[i]);
}

bool bit(const uint8_t* bits, int64_t i) { return (bits[i >> 3] >> (i & 7) & 1) != 0; }

// `i` without the array's offset.
bool valid(const ArrowArray& array, int64_t i) {
  const auto* bits = buffer<uint8_t>(array, 0);
  return bits == nullptr || bit(bits, i + array.offset);
}

bool all_finite(const float* begin, const float* end) {
  bool fine = true;
  for (; begin != end; ++begin) fine &= std::abs(*begin) <= std::numeric_limits<float>::max();
  return fine;
}

bool has_nulls(const ArrowArray& array) { return array.null_count != 0 && array.buffers[0] != nullptr; }

template <class T>
auto number(const ArrowArray& array, int64_t i) {
  i += array.offset;
  if constexpr (std::is_same_v<T, Bit>)
    return static_cast<int8_t>(bit(buffer<uint8_t>(array, 1), i));
  else if constexpr (std::is_same_v<T, Half>)
    return tessera::sdk::half_to_float(buffer<uint16_t>(array, 1)[i]);
  else
    return buffer<T>(array, 1)[i];
}

std::string_view text_at(const ArrowArray& array, const ArrowType& type, int64_t i) {
  i += array.offset;
  const auto between = [&](const auto* offsets) {
    return std::string_view(buffer<char>(array, 2) + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
  };
  if (type.storage == Storage::kText) return between(buffer<int32_t>(array, 1));
  if (type.storage == Storage::kLargeText) return between(buffer<int64_t>(array, 1));
  return {buffer<char>(array, 1) + i * type.width, static_cast<size_t>(type.width)};
}

// Floats that are whole numbers in all their digits, as ids are.
template <class V>
std::string shown(V value) {
  if constexpr (std::is_floating_point_v<V>) {
    if (value == std::trunc(value) && std::fabs(value) < V{0x1p63}) return shown(static_cast<int64_t>(value));
  }
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::optional<Storage> storage_of(std::string_view format, int64_t& width) {
  constexpr std::string_view kOne = "bcCsSiIlLefguUzZ";
  constexpr Storage kStorage[] = {Storage::kBool,   Storage::kInt8,      Storage::kUInt8,   Storage::kInt16,
                                  Storage::kUInt16, Storage::kInt32,     Storage::kUInt32,  Storage::kInt64,
                                  Storage::kUInt64, Storage::kFloat16,   Storage::kFloat32, Storage::kFloat64,
                                  Storage::kText,   Storage::kLargeText, Storage::kText,    Storage::kLargeText};
  if (format.size() == 1) {
    const size_t at = kOne.find(format[0]);
    return at == std::string_view::npos ? std::nullopt : std::optional(kStorage[at]);
  }
  // Times are numbers of their unit.
  if (format == "tdD" || format == "tts" || format == "ttm") return Storage::kInt32;
  if (format == "tdm" || format == "ttu" || format == "ttn") return Storage::kInt64;
  if (format.starts_with("ts") || format.starts_with("tD")) return Storage::kInt64;
  if (!format.starts_with("w:")) return std::nullopt;
  const std::string_view digits = format.substr(2);
  if (std::from_chars(digits.data(), digits.data() + digits.size(), width).ec != std::errc()) return std::nullopt;
  return Storage::kFixedText;
}

// Of one value, no list.
bool read_value_type(const ArrowSchema& schema, ArrowType& type) {
  const bool dictionary = schema.dictionary != nullptr;
  const std::optional<Storage> values = storage_of(dictionary ? schema.dictionary->format : schema.format, type.width);
  if (!values) return false;
  type.storage = *values;
  int64_t unused = 0;
  if (dictionary) type.indices = storage_of(schema.format, unused);
  return !dictionary || (type.indices && *type.indices >= Storage::kInt8 && *type.indices <= Storage::kUInt64);
}

}  // namespace

std::optional<ArrowType> ArrowType::of(const ArrowSchema& schema) {
  ArrowType type;
  const std::string_view format = schema.format;
  if (format == "+l" || format == "+m")
    type.list = List::kList;
  else if (format == "+L")
    type.list = List::kLargeList;
  else if (format.starts_with("+w:"))
    type.list = List::kFixedList;
  if (type.list == List::kNone) return read_value_type(schema, type) ? std::optional(type) : std::nullopt;
  if (type.list == List::kFixedList) {
    const std::string_view digits = format.substr(3);
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), type.list_size);
  }
  if (schema.n_children != 1) return std::nullopt;
  const ArrowSchema& items = *schema.children[0];
  if (std::string_view(items.format) != "+s") return read_value_type(items, type) ? std::optional(type) : std::nullopt;
  int64_t unused = 0;
  if (items.n_children != 2 || items.children[1]->dictionary != nullptr) return std::nullopt;
  type.weight = storage_of(items.children[1]->format, unused);
  if (!type.weight || *type.weight >= Storage::kText) return std::nullopt;
  return read_value_type(*items.children[0], type) ? std::optional(type) : std::nullopt;
}

ArrowColumn::ArrowColumn(const tessera::sdk::ReaderWant& want, const ArrowType& type, const std::string& file)
    : want_(want), type_(type) {
  const auto refuse = [&](const char* holds, const char* wanted) {
    fail(TSR_INVALID_ARGUMENT, file, ", column \"", want.name, "\" holds ", holds, ", but ", wanted, " wanted");
  };
  if (want.type < TSR_READER_TEXT || want.type > TSR_READER_INT64)
    fail(TSR_UNIMPLEMENTED, "values of type ", want.type, " are not known here");
  if (want.list != (type.list != List::kNone))
    want.list ? refuse("one value a row", "lists are") : refuse("lists", "one value a row is");
  if (want.weighted && !type.weight) refuse("lists without weights", "weighted ones are");
  if (want.type != TSR_READER_TEXT && type.is_text())
    refuse("texts", want.type == TSR_READER_INT64 ? "whole numbers are" : "numbers are");
}

void ArrowColumn::start_block(int64_t rows) {
  block_rows_ = rows;
  lent_ = nullptr;
  floats_.clear();
  weights_.clear();
  integers_.clear();
  bytes_.clear();
  present_.clear();
  texts_.assign(want_.type == TSR_READER_TEXT ? 1 : 0, 0);
  lists_.assign(want_.list ? 1 : 0, 0);
  if (want_.list) lists_.reserve(static_cast<size_t>(rows) + 1);
}

void ArrowColumn::append(const ArrowArray& array, int64_t first, int64_t rows) {
  if (want_.list) return append_lists(array, first, rows);
  if (rows == block_rows_) lent_ = as_they_lie(array, first, first + rows);
  if (lent_ == nullptr) append_values(array, first, first + rows);
}

const void* ArrowColumn::as_they_lie(const ArrowArray& array, int64_t begin, int64_t end) const {
  if (has_nulls(array) || array.dictionary != nullptr || type_.weight) return nullptr;
  if (want_.type == TSR_READER_INT64 && type_.storage == Storage::kInt64)
    return buffer<int64_t>(array, 1) + array.offset + begin;
  if (want_.type != TSR_READER_FLOAT32 || type_.storage != Storage::kFloat32) return nullptr;
  const float* values = buffer<float>(array, 1) + array.offset;
  return all_finite(values + begin, values + end) ? values + begin : nullptr;
}

void ArrowColumn::append_lists(const ArrowArray& array, int64_t first, int64_t rows) {
  const auto bound = [&](int64_t row) -> int64_t {
    row += array.offset;
    if (type_.list == List::kList) return buffer<int32_t>(array, 1)[row];
    if (type_.list == List::kLargeList) return buffer<int64_t>(array, 1)[row];
    return row * type_.list_size;
  };
  const ArrowArray& items = *array.children[0];
  if (!has_nulls(array)) {
    const int64_t begin = bound(first), end = bound(first + rows), before = lists_.back() - begin;
    const size_t filled = lists_.size();
    lists_.resize(filled + static_cast<size_t>(rows));
    const auto add_ends = [&, to = lists_.data() + filled, next = first + 1](const auto& at) {
      for (int64_t i = 0; i < rows; ++i) to[i] = before + at(next + i);
    };
    if (type_.list == List::kList)
      add_ends([ends = buffer<int32_t>(array, 1) + array.offset](int64_t row) { return ends[row]; });
    else
      add_ends(bound);
    if (rows == block_rows_) lent_ = as_they_lie(items, begin, end);
    if (lent_ == nullptr) append_items(items, begin, end);
    return;
  }
  // Neighbours are copied in one go: only a list that is null may have something between.
  int64_t begin = bound(first), end = begin, total = lists_.back();
  for (int64_t row = first; row < first + rows; ++row) {
    if (valid(array, row)) {
      const int64_t here = bound(row);
      if (here != end) {
        append_items(items, begin, end);
        begin = here;
      }
      end = bound(row + 1);
      total += end - here;
    }
    lists_.push_back(total);
  }
  append_items(items, begin, end);
}

void ArrowColumn::append_items(const ArrowArray& items, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (!type_.weight) return append_values(items, begin, end);
  for (int64_t i = begin; has_nulls(items) && i < end; ++i) {
    if (!valid(items, i)) wrong(count() + i - begin, "a value of the list is missing");
  }
  begin += items.offset;
  end += items.offset;
  if (want_.weighted) append_weights(*items.children[1], begin, end);
  append_values(*items.children[0], begin, end);
}

void ArrowColumn::append_values(const ArrowArray& array, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (array.dictionary != nullptr) return append_from_dictionary(array, begin, end);
  if (want_.type == TSR_READER_TEXT) return append_texts(array, begin, end);
  const bool nulls = has_nulls(array);
  if (!nulls && want_.type == TSR_READER_FLOAT32 && append_floats(array, begin, end)) return;
  with_storage(type_.storage, [&](auto stored) {
    using T = decltype(stored);
    using V = decltype(number<T>(array, 0));
    constexpr bool kFits = std::is_integral_v<T> && !std::is_same_v<T, uint64_t>;
    if constexpr (kFits) {
      const T* from = buffer<T>(array, 1) + array.offset;
      if (!nulls && want_.type == TSR_READER_INT64) {
        integers_.insert(integers_.end(), from + begin, from + end);
        return;
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      if (nulls && !valid(array, i)) {
        append_null();
        continue;
      }
      const V value = number<T>(array, i);
      if (want_.type == TSR_READER_INT64)
        append_integer(value);
      else
        append_float(static_cast<double>(value));
    }
  });
}

// False, and nothing is appended, where one is no number of 32 bits.
bool ArrowColumn::append_floats(const ArrowArray& array, int64_t begin, int64_t end) {
  const size_t before = floats_.size();
  floats_.resize(before + static_cast<size_t>(end - begin));
  float* out = floats_.data() + before;
  with_storage(type_.storage, [&](auto stored) {
    for (int64_t i = begin; i < end; ++i) out[i - begin] = static_cast<float>(number<decltype(stored)>(array, i));
  });
  const bool fine = all_finite(out, out + (end - begin));
  if (!fine) floats_.resize(before);
  return fine;
}

template <class V>
void ArrowColumn::append_integer(V value) {
  constexpr auto kLimit = static_cast<V>(std::numeric_limits<int64_t>::max());  // of floats: 2^63
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(value)) return append_null();
    if (value != std::trunc(value)) wrong(count(), shown(value) + " is no whole number");
    if (value >= kLimit || value < -kLimit) wrong(count(), shown(value) + " does not fit into 64 bits with a sign");
  } else if constexpr (std::is_same_v<V, uint64_t>) {
    if (value > kLimit) wrong(count(), shown(value) + " does not fit into 64 bits with a sign");
  }
  integers_.push_back(static_cast<int64_t>(value));
}

void ArrowColumn::append_float(double value) {
  if (std::isnan(value)) return append_null();
  const auto out = static_cast<float>(value);
  if (!std::isfinite(out)) wrong(count(), shown(value) + " is no number of 32 bits");
  floats_.push_back(out);
}

void ArrowColumn::append_weights(const ArrowArray& array, int64_t begin, int64_t end) {
  const bool nulls = has_nulls(array);
  with_storage(*type_.weight, [&](auto stored) {
    for (int64_t i = begin; i < end; ++i) {
      const auto weight = static_cast<float>(number<decltype(stored)>(array, i));
      if ((nulls && !valid(array, i)) || !std::isfinite(weight))
        wrong(static_cast<int64_t>(weights_.size()), "a weight of the list is missing or no number");
      weights_.push_back(weight);
    }
  });
}

void ArrowColumn::append_text(std::string_view text) {
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  texts_.push_back(static_cast<int64_t>(bytes_.size()));
}

template <class Offset>
void ArrowColumn::append_all_texts(const Offset* offsets, const ArrowArray& array, int64_t begin, int64_t end) {
  offsets += array.offset;
  const auto* bytes = buffer<char>(array, 2);
  const int64_t before = texts_.back() - offsets[begin];
  if (offsets[begin] != offsets[end]) bytes_.insert(bytes_.end(), bytes + offsets[begin], bytes + offsets[end]);
  for (int64_t i = begin; i < end; ++i) texts_.push_back(before + offsets[i + 1]);
}

void ArrowColumn::append_texts(const ArrowArray& array, int64_t begin, int64_t end) {
  const bool nulls = has_nulls(array);
  if (!nulls && type_.storage == Storage::kText) return append_all_texts(buffer<int32_t>(array, 1), array, begin, end);
  if (!nulls && type_.storage == Storage::kLargeText)
    return append_all_texts(buffer<int64_t>(array, 1), array, begin, end);
  for (int64_t i = begin; i < end; ++i) {
    if (nulls && !valid(array, i))
      append_null();
    else if (type_.is_text())
      append_text(text_at(array, type_, i));
    else
      with_storage(type_.storage, [&](auto stored) { append_text(shown(number<decltype(stored)>(array, i))); });
  }
}

void ArrowColumn::append_from_dictionary(const ArrowArray& array, int64_t begin, int64_t end) {
  const ArrowArray& dictionary = *array.dictionary;
  for (int64_t i = begin; i < end; ++i) {
    if (!valid(array, i)) {
      append_null();
      continue;
    }
    with_storage(*type_.indices, [&](auto stored) {
      // NOLINTNEXTLINE(bugprone-signed-char-misuse): an index of 8 bits is a number, too
      const auto at = static_cast<int64_t>(number<decltype(stored)>(array, i));
      if (at < 0 || at >= dictionary.length)
        wrong(count(), "names value " + shown(at) + " of a dictionary of " + shown(dictionary.length));
      append_values(dictionary, at, at + 1);
    });
  }
}

int64_t ArrowColumn::count() const {
  return static_cast<int64_t>(want_.type == TSR_READER_FLOAT32 ? floats_.size()
                              : want_.type == TSR_READER_INT64 ? integers_.size()
                                                               : texts_.size() - 1);
}

void ArrowColumn::append_null() {
  if (want_.list) wrong(count(), "a value of the list is missing");
  present_.resize(static_cast<size_t>(count()), 1);
  present_.push_back(0);
  if (want_.type == TSR_READER_FLOAT32) floats_.push_back(std::numeric_limits<float>::quiet_NaN());
  if (want_.type == TSR_READER_INT64) integers_.push_back(0);
  if (want_.type == TSR_READER_TEXT) append_text({});
}

void ArrowColumn::wrong(int64_t value, const std::string& what) const {
  const auto list = std::upper_bound(lists_.begin(), lists_.end(), value);
  throw WrongValue(want_.list ? list - lists_.begin() - 1 : value, what);
}

tsr_reader_values ArrowColumn::values() {
  tsr_reader_values out{};
  out.struct_size = sizeof(out);
  if (want_.type == TSR_READER_FLOAT32) out.values = lent_ ? lent_ : floats_.data();
  if (want_.type == TSR_READER_INT64) out.values = lent_ ? lent_ : integers_.data();
  if (want_.type == TSR_READER_TEXT) {
    out.values = bytes_.data();
    out.texts = texts_.data();
  }
  if (want_.list) out.lists = lists_.data();
  if (want_.weighted) out.weights = weights_.data();
  if (!present_.empty()) {
    present_.resize(static_cast<size_t>(count()), 1);
    out.present = present_.data();
  }
  return out;
}

}  // namespace tessera_readers
