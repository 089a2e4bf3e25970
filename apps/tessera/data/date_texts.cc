#include "data/date_texts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace tessera::cli {
namespace {

bool is_date_digit(char c) { return c >= '0' && c <= '9'; }
bool is_date_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// True for a time of the day such as 10:30 and 12.00.00.
bool is_clock(std::string_view token) {
  return token.find(':') != std::string_view::npos ||
         (std::count(token.begin(), token.end(), '.') > 1 &&
          token.find_first_not_of("0123456789.") == std::string_view::npos);
}

// The words of a text, in lower case, and the number of its digits, without a time of the day.
std::vector<std::string> date_words(std::string_view text, size_t& digits) {
  std::vector<std::string> out;
  const char* const begin = text.data();
  digits = 0;
  while (!text.empty()) {
    const std::string_view token = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(token.size() + 1, text.size()));
    if (is_clock(token) && &token[0] != begin) continue;
    bool in_word = false;
    for (const char c : token) {
      digits += is_date_digit(c) ? 1 : 0;
      const bool letter = is_date_letter(c);
      if (letter && !in_word) out.emplace_back();
      if (letter) out.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      in_word = letter;
    }
  }
  return out;
}

constexpr std::array<std::string_view, 12> kMonths = {"january",   "february", "march",    "april",
                                                      "may",       "june",     "july",     "august",
                                                      "september", "october",  "november", "december"};

bool is_month(std::string_view word) {
  return std::any_of(kMonths.begin(), kMonths.end(),
                     [&](std::string_view m) { return word == m || word == m.substr(0, 3) || word == m.substr(0, 4); });
}

// True for Mar-2018, Mar 5, 2024 and Sun, 10 March 2024 10:00:00 GMT: a month's name, numbers, and nothing else.
bool names_month(std::string_view text) {
  static constexpr std::array<std::string_view, 19> kOthers = {
      "mon",      "tue",    "wed",      "thu",    "fri", "sat", "sun", "monday", "tuesday", "wednesday",
      "thursday", "friday", "saturday", "sunday", "am",  "pm",  "gmt", "utc",    "th"};
  size_t digits = 0, months = 0;
  for (const std::string& word : date_words(text, digits)) {
    const bool month = is_month(word);
    months += month ? 1 : 0;
    if (!month && std::find(kOthers.begin(), kOthers.end(), word) == kOthers.end()) return false;
  }
  return months == 1 && digits >= 2 && digits <= 6;
}

// The groups of digits of a text, and its words, which may have letters of other scripts.
struct DateParts {
  std::vector<std::string> digits, words;
};

DateParts parts_of(std::string_view text) {
  DateParts out;
  char before = '\0';  // d: a digit, w: a letter
  for (const char c : text) {
    const char kind = is_date_digit(c) ? 'd' : is_date_letter(c) || static_cast<unsigned char>(c) >= 0x80 ? 'w' : '\0';
    std::vector<std::string>& all = kind == 'd' ? out.digits : out.words;
    if (kind != '\0' && kind != before) all.emplace_back();
    if (kind != '\0') all.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    before = kind;
  }
  return out;
}

// True for a group of one or two digits from 1 to `most`.
bool is_up_to(const std::string& digits, int most) {
  if (digits.empty() || digits.size() > 2) return false;
  const int number = std::stoi(digits);
  return number >= 1 && number <= most;
}

// True for 2023:03:22 10:00:00, Wed Mar 22 2023 10:00:00 GMT+0000 and 22. März 2023: one year of four digits, and the
// day beside it, with the month in digits or in letters.
bool has_year_and_day(std::string_view text) {
  constexpr size_t kLongest = 70;
  if (text.size() > kLongest) return false;
  const DateParts parts = parts_of(text);
  const auto is_year = [](const std::string& d) {
    return d.size() == 4 && (d.starts_with("19") || d.starts_with("20"));
  };
  const auto year = std::find_if(parts.digits.begin(), parts.digits.end(), is_year);
  if (year == parts.digits.end() || std::any_of(year + 1, parts.digits.end(), is_year)) return false;
  const int64_t at = year - parts.digits.begin();
  const auto group = [&](int64_t i) {
    return i >= 0 && i < std::ssize(parts.digits) ? parts.digits[i] : std::string();
  };
  for (const int64_t step : {1, -1}) {
    const std::string near = group(at + step), far = group(at + 2 * step);
    if (is_up_to(near, 12) && is_up_to(far, 31)) return true;
    if (is_up_to(near, 31) && is_up_to(far, 12)) return true;
    if (is_up_to(near, 31) && std::any_of(parts.words.begin(), parts.words.end(), is_month)) return true;
  }
  const bool one_word = parts.words.size() == 1 && parts.words[0].size() >= 3;
  return one_word && parts.digits.size() == 2 && is_up_to(group(at == 0 ? 1 : 0), 31);
}

}  // namespace

bool like_date(std::string_view text) {
  if (names_month(text) || has_year_and_day(text)) return true;
  const std::string_view first = text.substr(0, text.find(' '));
  const auto marks = std::count_if(first.begin(), first.end(), [](char c) { return c == '/' || c == '.' || c == '-'; });
  const auto digits = std::count_if(first.begin(), first.end(), is_date_digit);
  return first.find_first_not_of("0123456789/.-,;") == std::string_view::npos && marks == 2 && digits >= 4 &&
         digits <= 8 && !text.empty() && is_date_digit(text[0]);
}

}  // namespace tessera::cli
