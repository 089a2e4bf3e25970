#include "columnar/column.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tessera/sdk/values.h"

namespace tessera_readers {
namespace {

using Storage = ArrowValues::Storage;
using List = ArrowType::List;

template <class Float>
bool all_finite(const Float* begin, const Float* end) {
  bool fine = true;
  for (; begin != end; ++begin) fine &= std::abs(*begin) <= std::numeric_limits<Float>::max();
  return fine;
}

template <class V>
std::string shown(V value) {
  std::string out;
  if constexpr (std::is_floating_point_v<V>) {
    const auto wide = static_cast<double>(value);
    if (!std::isfinite(wide)) return wide < 0 ? "-inf" : "inf";
    tessera::sdk::append_word(out, wide);
  } else {
    tessera::sdk::append_word(out, value);
  }
  return out;
}

struct Bounds {
  int64_t begin = 0, end = 0;
};

// The range of items of a list that is not null.
Bounds bounds_of(const ArrowArray& array, const ArrowType& type, int64_t row) {
  row += array.offset;
  const auto between = [&](const auto* offsets) { return Bounds{offsets[row], offsets[row + 1]}; };
  const auto sized = [&](const auto* offsets, const auto* sizes) {
    return Bounds{offsets[row], int64_t{offsets[row]} + sizes[row]};
  };
  switch (type.list) {
    case List::kList:
      return between(buffer_of<int32_t>(array, 1));
    case List::kLargeList:
      return between(buffer_of<int64_t>(array, 1));
    case List::kListView:
      return sized(buffer_of<int32_t>(array, 1), buffer_of<int32_t>(array, 2));
    case List::kLargeListView:
      return sized(buffer_of<int64_t>(array, 1), buffer_of<int64_t>(array, 2));
    default:
      return {row * type.list_size, (row + 1) * type.list_size};
  }
}

// True for texts that are read as the fields of CSV are: split into lists, or as numbers.
bool is_parsed(const tessera::sdk::ReaderWant& want, const ArrowType& type) {
  return (want.list || want.type != TSR_READER_TEXT) && type.list == List::kNone && type.values.is_text();
}

}  // namespace

std::string misfit(const tessera::sdk::ReaderWant& want, const ArrowType& type) {
  if (want.type < TSR_READER_TEXT || want.type > TSR_READER_FLOAT64)
    return "is wanted as values of type " + std::to_string(want.type) + ", which are not known here";
  if (type.is_null()) return {};
  const bool list = type.list != List::kNone, nothing = type.values.storage == Storage::kNull;
  if (is_parsed(want, type)) return {};
  if (want.list != list)
    return list ? "holds lists, but one value for each row is wanted"
                : "holds one value for each row, but lists are wanted";
  if (want.weighted && !type.weight && !nothing) return "holds lists without weights, but weighted ones are wanted";
  if (list && !want.weighted && type.weight) return "holds lists with weights, but lists without are wanted";
  if (want.type == TSR_READER_TEXT || !type.values.is_text()) return {};
  return want.type == TSR_READER_INT64 ? "holds texts, but whole numbers are wanted"
                                       : "holds texts, but numbers are wanted";
}

ArrowColumn::ArrowColumn(const tessera::sdk::ReaderWant& want, const ArrowType& type) : want_(want), type_(type) {
  if (!is_parsed(want, type)) return;
  parsed_.emplace(want, !want.list);
  want_.list = want_.weighted = false;
  want_.type = TSR_READER_TEXT;
}

void ArrowColumn::start_block(int64_t rows) {
  if (parsed_) parsed_->start_block(rows);
  rows_ = 0;
  block_rows_ = rows;
  lent_ = nullptr;
  floats_.clear();
  doubles_.clear();
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
  if (parsed_) parse_texts(rows);
}

// Parses the texts that have just been appended, and removes them.
void ArrowColumn::parse_texts(int64_t rows) {
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i, ++rows_) {
    try {
      parsed_->add({bytes_.data() + texts_[i], static_cast<size_t>(texts_[i + 1] - texts_[i])});
    } catch (const WrongField& e) {
      throw WrongValue(rows_, e.what());
    }
  }
  bytes_.clear();
  present_.clear();
  texts_.assign(1, 0);
}

void ArrowColumn::append_same(const std::optional<std::string>& text, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    if (!text)
      append_null();
    else if (want_.type == TSR_READER_TEXT)
      append_text(*text);
    else
      append_digits(*text);
  }
}

const void* ArrowColumn::as_they_lie(const ArrowArray& array, int64_t begin, int64_t end) const {
  const ArrowValues& values = type_.values;
  if (!values.wraps.empty() || !values.is_number() || values.is_duration() || type_.weight || has_nulls(array))
    return nullptr;
  const auto finite = [&](const auto* all) -> const void* {
    all += array.offset;
    return all_finite(all + begin, all + end) ? all + begin : nullptr;
  };
  if (want_.type == TSR_READER_INT64 && values.storage == Storage::kInt64)
    return buffer_of<int64_t>(array, 1) + array.offset + begin;
  if (want_.type == TSR_READER_FLOAT32 && values.storage == Storage::kFloat32)
    return finite(buffer_of<float>(array, 1));
  if (want_.type == TSR_READER_FLOAT64 && values.storage == Storage::kFloat64)
    return finite(buffer_of<double>(array, 1));
  return nullptr;
}

void ArrowColumn::append_lists(const ArrowArray& array, int64_t first, int64_t rows) {
  if (type_.is_null()) {
    lists_.resize(lists_.size() + static_cast<size_t>(rows), lists_.back());
    return;
  }
  const bool view = type_.list == List::kListView || type_.list == List::kLargeListView;
  if (type_.list_wraps.empty() && !view && !has_nulls(array)) return append_plain_lists(array, first, rows);
  // Copies neighbouring lists in one go. Other items may lie between lists, and views come in any order.
  const ArrowArray* items = nullptr;
  Bounds run;
  int64_t total = lists_.back();
  for (int64_t row = first; row < first + rows; ++row) {
    Cell cell;
    try {
      cell = cell_of(array, type_.list_wraps, row);
    } catch (const std::out_of_range& e) {
      throw WrongValue(std::ssize(lists_) - 1, e.what());
    }
    if (cell.array != nullptr && is_valid(*cell.array, cell.i)) {
      items = cell.array->children[0];
      const Bounds here = bounds_of(*cell.array, type_, cell.i);
      if (here.begin != run.end) {
        append_items(*items, run.begin, run.end);
        run.begin = here.begin;
      }
      run.end = here.end;
      total += here.end - here.begin;
    }
    lists_.push_back(total);
  }
  if (items != nullptr) append_items(*items, run.begin, run.end);
}

void ArrowColumn::append_plain_lists(const ArrowArray& array, int64_t first, int64_t rows) {
  const ArrowArray& items = *array.children[0];
  if (rows == 0) return;
  const int64_t begin = bounds_of(array, type_, first).begin, end = bounds_of(array, type_, first + rows - 1).end;
  const int64_t before = lists_.back() - begin;
  const size_t filled = lists_.size();
  lists_.resize(filled + static_cast<size_t>(rows));
  const auto add_ends = [&, to = lists_.data() + filled](const auto& end_of) {
    for (int64_t i = 0; i < rows; ++i) to[i] = before + end_of(first + i);
  };
  if (type_.list == List::kList)
    add_ends([ends = buffer_of<int32_t>(array, 1) + array.offset + 1](int64_t row) { return ends[row]; });
  else
    add_ends([&](int64_t row) { return bounds_of(array, type_, row).end; });
  if (rows == block_rows_) lent_ = as_they_lie(items, begin, end);
  if (lent_ == nullptr) append_items(items, begin, end);
}

void ArrowColumn::append_items(const ArrowArray& items, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (!type_.weight) return append_values(items, begin, end);
  for (int64_t i = begin; has_nulls(items) && i < end; ++i) {
    if (!is_valid(items, i)) wrong(count() + i - begin, "a value of the list is missing: leave nulls out of the lists");
  }
  begin += items.offset;
  end += items.offset;
  if (want_.weighted) append_weights(*items.children[1], begin, end);
  append_values(*items.children[0], begin, end);
}

void ArrowColumn::append_values(const ArrowArray& array, int64_t begin, int64_t end) {
  if (begin == end) return;
  const ArrowValues& type = type_.values;
  if (type.wraps.empty() && type.storage != Storage::kNull) {
    if (want_.type == TSR_READER_TEXT) return append_texts(array, begin, end);
    if (type.storage != Storage::kDecimal) return append_numbers(array, begin, end);
  }
  for (int64_t i = begin; i < end; ++i) append_cell(value_at(array, type, i, count()));
}

void ArrowColumn::append_numbers(const ArrowArray& array, int64_t begin, int64_t end) {
  const bool nulls = has_nulls(array), plain = !nulls && !type_.values.is_duration();
  if (plain && want_.type == TSR_READER_FLOAT32 && append_floats(floats_, array, begin, end)) return;
  if (plain && want_.type == TSR_READER_FLOAT64 && append_floats(doubles_, array, begin, end)) return;
  with_storage(type_.values.storage, [&](auto stored) {
    using T = decltype(stored);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, uint64_t>) {
      const T* from = buffer_of<T>(array, 1) + array.offset;
      if (plain && want_.type == TSR_READER_INT64) {
        integers_.insert(integers_.end(), from + begin, from + end);
        return;
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      if (nulls && !is_valid(array, i))
        append_null();
      else
        append_stored(number_of<T>(array, i));
    }
  });
}

// Returns false and appends nothing if a value is not a number of the type.
template <class Float>
bool ArrowColumn::append_floats(std::vector<Float>& floats, const ArrowArray& array, int64_t begin, int64_t end) {
  const size_t before = floats.size();
  floats.resize(before + static_cast<size_t>(end - begin));
  Float* out = floats.data() + before;
  with_storage(type_.values.storage, [&](auto stored) {
    for (int64_t i = begin; i < end; ++i) out[i - begin] = static_cast<Float>(number_of<decltype(stored)>(array, i));
  });
  const bool fine = all_finite(out, out + (end - begin));
  if (!fine) floats.resize(before);
  return fine;
}

// `value` is the index among the values of the block.
Cell ArrowColumn::value_at(const ArrowArray& array, const ArrowValues& type, int64_t i, int64_t value) const {
  try {
    return cell_of(array, type.wraps, i);
  } catch (const std::out_of_range& e) {
    wrong(value, e.what());
  }
}

// Appends a value after unwrapping, a decimal, or a missing value.
void ArrowColumn::append_cell(const Cell& cell) {
  const ArrowValues& type = type_.values;
  if (cell.array == nullptr || type.storage == Storage::kNull || !is_valid(*cell.array, cell.i)) return append_null();
  if (want_.type == TSR_READER_TEXT) return append_texts(*cell.array, cell.i, cell.i + 1);
  if (type.storage == Storage::kDecimal) return append_digits(decimal_digits(*cell.array, type, cell.i));
  with_storage(type.storage, [&](auto stored) { append_stored(number_of<decltype(stored)>(*cell.array, cell.i)); });
}

// Appends a number given as text.
void ArrowColumn::append_digits(const std::string& digits) {
  const char* const end = digits.data() + digits.size();
  int64_t whole = 0;
  const auto [whole_end, whole_code] = std::from_chars(digits.data(), end, whole);
  if (whole_code == std::errc() && whole_end == end && !digits.empty()) return append_number(whole);
  double value = 0;
  const auto [value_end, code] = std::from_chars(digits.data(), end, value);
  if (value_end != end || (code != std::errc() && code != std::errc::result_out_of_range))
    wrong(count(), "\"" + digits + "\" is not a number");
  if (want_.type != TSR_READER_INT64) {
    if (code != std::errc()) wrong(count(), digits + " is not a number of 64 bits");
    return append_float(value);
  }
  wrong(count(), digits + (whole_code == std::errc::result_out_of_range ? " does not fit into 64 bits with a sign"
                                                                        : " is not a whole number"));
}

template <class V>
void ArrowColumn::append_stored(V value) {
  if (type_.values.is_duration())
    append_number(static_cast<double>(value) / static_cast<double>(type_.values.per_second));
  else
    append_number(value);
}

template <class V>
void ArrowColumn::append_number(V value) {
  if (want_.type == TSR_READER_INT64)
    append_integer(value);
  else
    append_float(static_cast<double>(value));
}

template <class V>
void ArrowColumn::append_integer(V value) {
  constexpr auto kLimit = static_cast<V>(std::numeric_limits<int64_t>::max());  // for floats: 2^63
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(value)) return append_null();
    if (value >= kLimit || value < -kLimit) wrong(count(), shown(value) + " does not fit into 64 bits with a sign");
    if (value != std::trunc(value)) wrong(count(), shown(value) + " is not a whole number");
  } else if constexpr (std::is_same_v<V, uint64_t>) {
    if (value > kLimit) wrong(count(), shown(value) + " does not fit into 64 bits with a sign");
  }
  integers_.push_back(static_cast<int64_t>(value));
}

void ArrowColumn::append_float(double value) {
  if (std::isinf(value) && want_.list) wrong(count(), shown(value) + " is not a number");
  if (!std::isfinite(value)) return append_null();
  if (want_.type == TSR_READER_FLOAT64) {
    doubles_.push_back(value);
    return;
  }
  const auto out = static_cast<float>(value);
  if (!std::isfinite(out)) wrong(count(), shown(value) + " is not a number of 32 bits");
  floats_.push_back(out);
}

void ArrowColumn::append_weights(const ArrowArray& array, int64_t begin, int64_t end) {
  const ArrowValues& type = *type_.weight;
  const auto none = [&] { wrong(std::ssize(weights_), "a weight of the list is missing or not a number"); };
  for (int64_t i = begin; i < end; ++i) {
    const Cell cell = value_at(array, type, i, std::ssize(weights_));
    if (cell.array == nullptr || !is_valid(*cell.array, cell.i)) none();
    auto weight = std::numeric_limits<float>::quiet_NaN();
    if (type.storage == Storage::kDecimal) {
      const std::string digits = decimal_digits(*cell.array, type, cell.i);
      (void)std::from_chars(digits.data(), digits.data() + digits.size(), weight);
    }
    with_storage(type.storage,
                 [&](auto stored) { weight = static_cast<float>(number_of<decltype(stored)>(*cell.array, cell.i)); });
    if (!std::isfinite(weight)) none();
    weights_.push_back(weight);
  }
}

void ArrowColumn::append_text(std::string_view text) {
  if (text.empty()) return append_null();
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  texts_.push_back(static_cast<int64_t>(bytes_.size()));
}

template <class Offset>
void ArrowColumn::append_all_texts(const Offset* offsets, const ArrowArray& array, int64_t begin, int64_t end) {
  offsets += array.offset;
  const auto* bytes = buffer_of<char>(array, 2);
  const int64_t before = texts_.back() - offsets[begin];
  if (offsets[begin] != offsets[end]) bytes_.insert(bytes_.end(), bytes + offsets[begin], bytes + offsets[end]);
  for (int64_t i = begin; i < end; ++i) {
    if (offsets[i] == offsets[i + 1])
      append_null();
    else
      texts_.push_back(before + offsets[i + 1]);
  }
}

void ArrowColumn::append_texts(const ArrowArray& array, int64_t begin, int64_t end) {
  const ArrowValues& type = type_.values;
  const bool nulls = has_nulls(array);
  if (!nulls && type.storage == Storage::kText)
    return append_all_texts(buffer_of<int32_t>(array, 1), array, begin, end);
  if (!nulls && type.storage == Storage::kLargeText)
    return append_all_texts(buffer_of<int64_t>(array, 1), array, begin, end);
  for (int64_t i = begin; i < end; ++i) {
    word_.clear();
    try {
      if ((!nulls || is_valid(array, i)) && append_word_of(word_, array, type, i))
        append_text(word_);
      else
        append_null();
    } catch (const std::out_of_range& e) {
      wrong(count(), e.what());
    }
  }
}

int64_t ArrowColumn::count() const {
  switch (want_.type) {
    case TSR_READER_FLOAT32:
      return static_cast<int64_t>(floats_.size());
    case TSR_READER_FLOAT64:
      return static_cast<int64_t>(doubles_.size());
    case TSR_READER_INT64:
      return static_cast<int64_t>(integers_.size());
    default:
      return static_cast<int64_t>(texts_.size()) - 1;
  }
}

void ArrowColumn::append_null() {
  if (want_.list) wrong(count(), "a value of the list is missing: leave nulls out of the lists");
  present_.resize(static_cast<size_t>(count()), 1);
  present_.push_back(0);
  if (want_.type == TSR_READER_FLOAT32) floats_.push_back(std::numeric_limits<float>::quiet_NaN());
  if (want_.type == TSR_READER_FLOAT64) doubles_.push_back(std::numeric_limits<double>::quiet_NaN());
  if (want_.type == TSR_READER_INT64) integers_.push_back(0);
  if (want_.type == TSR_READER_TEXT) texts_.push_back(texts_.back());
}

void ArrowColumn::wrong(int64_t value, const std::string& what) const {
  const auto list = std::upper_bound(lists_.begin(), lists_.end(), value);
  throw WrongValue(want_.list ? list - lists_.begin() - 1 : rows_ + value, what);
}

tsr_reader_values ArrowColumn::values() {
  if (parsed_) return parsed_->values();
  tsr_reader_values out{};
  out.struct_size = sizeof(out);
  if (want_.type == TSR_READER_FLOAT32) out.values = lent_ ? lent_ : floats_.data();
  if (want_.type == TSR_READER_FLOAT64) out.values = lent_ ? lent_ : doubles_.data();
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
