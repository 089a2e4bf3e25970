#include "csv_column.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace tessera_readers {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// What programs write where they have no number, in any case; those that `tessera data describe` knows.
bool is_missing_word(std::string_view text) {
  constexpr std::array<std::string_view, 7> kWords = {"na", "n/a", "nan", "null", "none", "?", "-"};
  const auto same = [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); };
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    return std::equal(word.begin(), word.end(), text.begin(), text.end(), same);
  });
}

[[noreturn]] void wrong(std::string_view text, const char* what) {
  constexpr size_t kMost = 40;
  throw WrongField('"' + std::string(text.substr(0, kMost)) + (text.size() > kMost ? "...\" " : "\" ") + what);
}

std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

float float_of(std::string_view text) {
  const std::string_view number = without_plus(trimmed(text));
  double value = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
  const auto out = static_cast<float>(value);
  if (code != std::errc() || end != number.data() + number.size() || !std::isfinite(out)) wrong(text, "is no number");
  return out;
}

// Whole numbers may be written 12.0, as programs do that know floats alone where values are missing.
int64_t integer_of(std::string_view text) {
  std::string_view number = without_plus(trimmed(text));
  const size_t point = number.find('.');
  if (point != std::string_view::npos && point > 0 &&
      number.find_first_not_of('0', point + 1) == std::string_view::npos)
    number = number.substr(0, point);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (code == std::errc::result_out_of_range) wrong(text, "does not fit into 64 bits with a sign");
  if (code != std::errc() || end != number.data() + number.size()) wrong(text, "is no whole number");
  return value;
}

constexpr int kDigits = 15;  // all numbers of so many digits are exact in a double, as are these powers
constexpr std::array<double, kDigits + 1> kPowers = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

// A number as most are written: [-]digits[.digits], at most 15 digits. False, and nothing moved, for any other field.
struct Plain {
  bool negative = false;
  uint64_t digits = 0;
  int decimals = 0;

  bool read(const char*& at, const char* end, char delimiter, bool with_decimals) {
    const char* p = at;
    negative = p < end && *p == '-';
    p += negative ? 1 : 0;
    const char* first = p;
    for (; p < end && static_cast<unsigned char>(*p - '0') < 10; ++p)
      digits = digits * 10 + static_cast<uint64_t>(*p - '0');
    auto count = p - first;
    if (with_decimals && count > 0 && p < end && *p == '.') {
      first = ++p;
      for (; p < end && static_cast<unsigned char>(*p - '0') < 10; ++p)
        digits = digits * 10 + static_cast<uint64_t>(*p - '0');
      decimals = static_cast<int>(std::min<std::ptrdiff_t>(p - first, kDigits + 1));
      count += p - first;
    }
    if (count == 0 || count > kDigits || (p < end && *p != delimiter)) return false;
    at = p;
    return true;
  }
};

}  // namespace

void CsvColumn::start_block(int64_t rows) {
  const auto n = static_cast<size_t>(rows);
  for (auto* numbers : {&floats_, &weights_}) numbers->clear();
  for (auto* numbers : {&integers_, &texts_, &lists_}) numbers->clear();
  bytes_.clear();
  present_.clear();
  all_present_ = true;
  if (want_.type == TSR_READER_FLOAT32) floats_.reserve(n);
  if (want_.type == TSR_READER_INT64) integers_.reserve(n);
  if (want_.type == TSR_READER_TEXT) {
    texts_.reserve(n + 1);
    texts_.push_back(0);
  }
  if (want_.list) {
    lists_.reserve(n + 1);
    lists_.push_back(0);
  } else {
    present_.reserve(n);
  }
}

const char* CsvColumn::take(const char* at, const char* end, char delimiter) {
  const char* begin = at;
  Plain number;
  if (!want_.list && want_.type == TSR_READER_FLOAT32 && number.read(at, end, delimiter, true)) {
    const double value = static_cast<double>(number.digits) / kPowers[static_cast<size_t>(number.decimals)];
    floats_.push_back(static_cast<float>(number.negative ? -value : value));
    end_row(true);
    return at;
  }
  if (!want_.list && want_.type == TSR_READER_INT64 && number.read(at, end, delimiter, false)) {
    const auto value = static_cast<int64_t>(number.digits);
    integers_.push_back(number.negative ? -value : value);
    end_row(true);
    return at;
  }
  while (at < end && *at != delimiter) ++at;
  add({begin, static_cast<size_t>(at - begin)});
  return at;
}

void CsvColumn::add(std::string_view field) {
  if (want_.list) {
    add_list(field);
    const size_t values = want_.type == TSR_READER_FLOAT32 ? floats_.size()
                          : want_.type == TSR_READER_INT64 ? integers_.size()
                                                           : texts_.size() - 1;
    lists_.push_back(static_cast<int64_t>(values));
  } else if (field.empty() || (missing_words_ && is_missing_word(trimmed(field)))) {
    add_missing();
    end_row(false);
  } else {
    add_value(field);
    end_row(true);
  }
}

void CsvColumn::add_list(std::string_view field) {
  field = trimmed(field);
  while (!field.empty()) {
    const size_t at = field.find(want_.separator);
    std::string_view item = trimmed(field.substr(0, at));
    const bool last = at == std::string_view::npos;
    field = last ? std::string_view() : field.substr(at + 1);
    if (item.empty() && kBlanks.find(want_.separator) != std::string_view::npos) continue;  // several blanks
    if (item.empty()) throw WrongField("there is a value missing in the list");
    if (want_.weighted) {
      const size_t colon = item.rfind(want_.weight_separator);
      if (colon == std::string_view::npos)
        wrong(item, (std::string("has no weight behind \"") + want_.weight_separator + '"').c_str());
      weights_.push_back(float_of(item.substr(colon + 1)));
      item = item.substr(0, colon);
    }
    add_value(item);
    if (!last && field.empty() && kBlanks.find(want_.separator) == std::string_view::npos)
      throw WrongField("there is a value missing in the list");
  }
}

void CsvColumn::add_missing() {
  if (want_.type == TSR_READER_FLOAT32) floats_.push_back(std::numeric_limits<float>::quiet_NaN());
  if (want_.type == TSR_READER_INT64) integers_.push_back(0);
  if (want_.type == TSR_READER_TEXT) texts_.push_back(static_cast<int64_t>(bytes_.size()));
}

void CsvColumn::add_value(std::string_view text) {
  if (want_.type == TSR_READER_FLOAT32) {
    floats_.push_back(float_of(text));
  } else if (want_.type == TSR_READER_INT64) {
    integers_.push_back(integer_of(text));
  } else {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    texts_.push_back(static_cast<int64_t>(bytes_.size()));
  }
}

void CsvColumn::end_row(bool present) {
  present_.push_back(present ? 1 : 0);
  all_present_ = all_present_ && present;
}

tsr_reader_values CsvColumn::values() const {
  tsr_reader_values out{};
  out.struct_size = sizeof(out);
  if (want_.type == TSR_READER_FLOAT32) out.values = floats_.data();
  if (want_.type == TSR_READER_INT64) out.values = integers_.data();
  if (want_.type == TSR_READER_TEXT) {
    out.values = bytes_.data();
    out.texts = texts_.data();
  }
  if (want_.list) out.lists = lists_.data();
  if (want_.weighted) out.weights = weights_.data();
  if (!want_.list && !all_present_) out.present = present_.data();
  return out;
}

}  // namespace tessera_readers
