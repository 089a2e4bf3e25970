#include "csv_column.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "csv_list.h"
#include "tessera/sdk/number_text.h"

namespace tessera_readers {
namespace {

constexpr std::string_view kBlanks = " \t";

using tessera::sdk::number_of;
using tessera::sdk::shown_text;
using tessera::sdk::trimmed;

[[noreturn]] void wrong(std::string_view text, const char* what) { throw WrongField(shown_text(text) + ' ' + what); }

double double_of(std::string_view text) {
  if (const auto number = number_of(text)) return *number;
  throw WrongField(tessera::sdk::no_number(text));
}

float float_of(std::string_view text) {
  const auto out = static_cast<float>(double_of(text));
  if (!std::isfinite(out)) wrong(text, "is too large for a float32");
  return out;
}

// Whole numbers may be written 12.0 or 1e+05, as by programs that only have floats; true and false are 1 and 0.
int64_t integer_of(std::string_view text) {
  constexpr double kExact = 0x1p53;
  std::string_view number = trimmed(text);
  if (number.size() > 1 && number[0] == '+' && number[1] != '-') number.remove_prefix(1);
  const size_t point = number.find('.');
  if (point != std::string_view::npos && point > 0 &&
      number.find_first_not_of('0', point + 1) == std::string_view::npos)
    number = number.substr(0, point);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (code == std::errc() && end == number.data() + number.size()) return value;
  if (code == std::errc::result_out_of_range && end == number.data() + number.size())
    wrong(text, "does not fit into 64 bits with a sign; ids = \"vocabulary\" or \"hash\" takes such ids");
  const auto real = number_of(text);
  if (real && std::fabs(*real) <= kExact && *real == std::trunc(*real)) return static_cast<int64_t>(*real);
  if (real && std::fabs(*real) > kExact) wrong(text, "is too large for a whole number in this notation");
  const std::string advice = tessera::sdk::is_missing_word(number) ? ": " + tessera::sdk::number_advice(number) : "";
  wrong(text, ("is not a whole number" + advice).c_str());
}

constexpr int kDigits = 15;  // numbers of this many digits are exact in a double, and so are these powers
constexpr std::array<double, kDigits + 1> kPowers = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

// Parses the usual form of numbers: [-]digits[.digits], at most 15 digits. Returns false and moves nothing for other
// fields.
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
  doubles_.clear();
  for (auto* numbers : {&integers_, &texts_, &lists_}) numbers->clear();
  bytes_.clear();
  present_.clear();
  all_present_ = true;
  if (want_.type == TSR_READER_FLOAT32) floats_.reserve(n);
  if (want_.type == TSR_READER_FLOAT64) doubles_.reserve(n);
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
  const bool real = want_.type == TSR_READER_FLOAT32 || want_.type == TSR_READER_FLOAT64;
  if (!want_.list && real && number.read(at, end, delimiter, true)) {
    const double value = static_cast<double>(number.digits) / kPowers[static_cast<size_t>(number.decimals)];
    add_real(number.negative ? -value : value);
    end_row(true);
  } else if (!want_.list && want_.type == TSR_READER_INT64 && number.read(at, end, delimiter, false)) {
    const auto value = static_cast<int64_t>(number.digits);
    integers_.push_back(number.negative ? -value : value);
    end_row(true);
  } else {
    while (at < end && *at != delimiter) ++at;
    add({begin, static_cast<size_t>(at - begin)});
  }
  return at;
}

void CsvColumn::add(std::string_view field) {
  if (want_.list) {
    add_list(field);
    lists_.push_back(static_cast<int64_t>(count()));
  } else if (field.empty() || (missing_words_ && tessera::sdk::is_missing_word(trimmed(field)))) {
    add_missing();
    end_row(false);
  } else {
    add_value(field);
    end_row(true);
  }
}

size_t CsvColumn::count() const {
  if (want_.type == TSR_READER_FLOAT32) return floats_.size();
  if (want_.type == TSR_READER_FLOAT64) return doubles_.size();
  return want_.type == TSR_READER_INT64 ? integers_.size() : texts_.size() - 1;
}

void CsvColumn::add_list(std::string_view field) {
  field = trimmed(field);
  if (const std::string_view printed = BracketedList::inside(field); !printed.empty()) {
    BracketedList list(printed, want_.separator);
    for (std::string_view key, weight; list.next(key, weight);) add_item(key, weight, list.quoted());
    return;
  }
  const bool blanks = kBlanks.find(want_.separator) != std::string_view::npos;
  while (!field.empty()) {
    const size_t at = field.find(want_.separator);
    const std::string_view item = trimmed(field.substr(0, at));
    const bool last = at == std::string_view::npos;
    field = last ? std::string_view() : field.substr(at + 1);
    if (item.empty() && blanks) continue;  // several blanks count as one
    if (item.empty() || (!last && field.empty() && !blanks)) throw WrongField("there is a value missing in the list");
    add_item(item, {}, false);
  }
}

// `weight` is the text after a quoted item.
void CsvColumn::add_item(std::string_view item, std::string_view weight, bool quoted) {
  if (!quoted && want_.type != TSR_READER_TEXT && missing_words_ && tessera::sdk::is_missing_word(item))
    throw WrongField("there is a value missing in the list");
  if (want_.weighted) {
    const size_t colon = weight.empty() ? item.rfind(want_.weight_separator) : item.size();
    if (colon == std::string_view::npos)
      wrong(item, (std::string("has no weight after \"") + want_.weight_separator + '"').c_str());
    weights_.push_back(float_of(weight.empty() ? item.substr(colon + 1) : weight));
    item = item.substr(0, colon);
  } else if (!weight.empty()) {
    wrong(item, "is followed by a value, as in a weighted list: set weighted = true");
  }
  if (item.empty()) throw WrongField("there is a value missing in the list");
  add_value(item);
}

void CsvColumn::add_missing() {
  if (want_.type == TSR_READER_FLOAT32) floats_.push_back(std::numeric_limits<float>::quiet_NaN());
  if (want_.type == TSR_READER_FLOAT64) doubles_.push_back(std::numeric_limits<double>::quiet_NaN());
  if (want_.type == TSR_READER_INT64) integers_.push_back(0);
  if (want_.type == TSR_READER_TEXT) texts_.push_back(static_cast<int64_t>(bytes_.size()));
}

void CsvColumn::add_value(std::string_view text) {
  if (want_.type == TSR_READER_FLOAT32) {
    floats_.push_back(float_of(text));
  } else if (want_.type == TSR_READER_FLOAT64) {
    doubles_.push_back(double_of(text));
  } else if (want_.type == TSR_READER_INT64) {
    integers_.push_back(integer_of(text));
  } else {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    texts_.push_back(static_cast<int64_t>(bytes_.size()));
  }
}

// Takes a number of at most 15 digits, which is also finite as a float32.
void CsvColumn::add_real(double value) {
  if (want_.type == TSR_READER_FLOAT32)
    floats_.push_back(static_cast<float>(value));
  else
    doubles_.push_back(value);
}

void CsvColumn::end_row(bool present) {
  present_.push_back(present ? 1 : 0);
  all_present_ = all_present_ && present;
}

tsr_reader_values CsvColumn::values() const {
  tsr_reader_values out{};
  out.struct_size = sizeof(out);
  if (want_.type == TSR_READER_FLOAT32) out.values = floats_.data();
  if (want_.type == TSR_READER_FLOAT64) out.values = doubles_.data();
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
