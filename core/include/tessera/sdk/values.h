// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/values.h - the word of a value, which is the text by which vocabularies, hashes and crosses identify it.
//
//   integer               its digits                              17, -3, 18446744073709551615
//   float                 the shortest text that reads back as
//                         the same double; a whole number is one  0.1, 1e-07, 4 (of 4.0)
//   decimal               its digits without zeros at the end     12.5 (of 12.50), 4 (of 4.00)
//   boolean               true or false
//   date, time of a day   2024-01-31, 12:34:56.5
//   date and time         2024-01-31 12:34:56.5, in UTC if its zone is known; at midnight only the date
//   text                  itself; a text that is one of the above in another spelling has the same word:
//                         4.0, True, 2024-01-31T12:34:56.500Z
//
// A reader of typed values calls append_word() with the value. A reader of texts passes the text on unchanged: the core
// calls append_word(text), which does not change words that were made here. NaN, infinite and null values are missing.
// Everything here is [any-thread] and allocates only in the string that it appends to.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::sdk {
inline namespace v1 {
namespace values_detail {

inline bool digit(char c) { return c >= '0' && c <= '9'; }

inline size_t digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && digit(text[end])) ++end;
  return end - at;
}

inline bool same_but_case(std::string_view text, std::string_view lower) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), same);
}

// Parses two digits at `at`, below `limit`; -1: there are none.
inline int two_digits(std::string_view text, size_t at, int limit) {
  if (at + 2 > text.size() || !digit(text[at]) || !digit(text[at + 1])) return -1;
  const int value = 10 * (text[at] - '0') + (text[at + 1] - '0');
  return value < limit ? value : -1;
}

}  // namespace values_detail

// True for the usual substitutes of a missing number, in any case: NA, N/A, NaN, NULL, None, \N, inf, ?, -, ...
inline bool is_missing_word(std::string_view text) {
  constexpr std::array<std::string_view, 30> kWords = {
      "na",       "n/a",       "n.a.",      "nan",    "-nan",    "null",    "null.",    "none",   "nil",     "nat",
      "<na>",     "#n/a",      "#na",       "?",      "-",       "--",      "\\n",      "inf",    "+inf",    "-inf",
      "infinity", "+infinity", "-infinity", "1.#inf", "-1.#inf", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind", "#null!"};
  constexpr size_t kLongest = 9;
  return text.size() <= kLongest && std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
           return values_detail::same_but_case(text, word);
         });
}

// A date, or a date and time: nanoseconds since 1970-01-01 00:00:00 UTC, for the years 1678 to 2261.
struct TimeText {
  int64_t nanoseconds = 0;
};

// Parses `2024-01-31`, optionally followed by a blank or a T and a time of day: `12:34`, `12:34:56`, `12:34:56.789`,
// with or without a zone: `Z`, ` UTC`, `+01:00`, `-0530`. Empty: the text is something else.
inline std::optional<TimeText> time_of(std::string_view text) {
  using values_detail::digit;
  using values_detail::digits_at;
  using values_detail::two_digits;
  constexpr int64_t kSecond = 1000000000;
  if (text.size() < 10 || digits_at(text, 0) != 4 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const int year = 1000 * (text[0] - '0') + 100 * (text[1] - '0') + 10 * (text[2] - '0') + (text[3] - '0');
  const int month = two_digits(text, 5, 13), day = two_digits(text, 8, 32);
  if (year < 1678 || year > 2261 || month < 1 || day < 1) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  int64_t seconds = int64_t{86400} * std::chrono::sys_days(date).time_since_epoch().count(), nanoseconds = 0;
  size_t at = 10;
  if (at == text.size()) return TimeText{seconds * kSecond};
  if (text[at] != ' ' && text[at] != 'T') return std::nullopt;
  const int hour = two_digits(text, 11, 24), minute = two_digits(text, 14, 60);
  if (hour < 0 || minute < 0 || text[13] != ':') return std::nullopt;
  seconds += 3600 * hour + 60 * minute;
  at = 16;
  if (at < text.size() && text[at] == ':') {
    const int second = two_digits(text, 17, 61);
    if (second < 0) return std::nullopt;
    seconds += second;
    at = 19;
    if (at < text.size() && (text[at] == '.' || text[at] == ',')) {
      const size_t count = digits_at(text, at + 1);
      if (count == 0) return std::nullopt;
      int64_t place = kSecond;
      for (size_t i = 0; i < std::min<size_t>(count, 9); ++i) nanoseconds += (place /= 10) * (text[at + 1 + i] - '0');
      at += 1 + count;
    }
  }
  if (at == text.size() || text.substr(at) == "Z" || text.substr(at) == " UTC")
    return TimeText{seconds * kSecond + nanoseconds};
  if (text[at] != '+' && text[at] != '-') return std::nullopt;
  const bool ahead = text[at] == '+';
  const int zone_hours = two_digits(text, at + 1, 24);
  size_t rest = at + 3;
  if (zone_hours < 0) return std::nullopt;
  if (rest < text.size() && text[rest] == ':') ++rest;
  const int zone_minutes = rest < text.size() ? two_digits(text, rest, 60) : 0;
  if (zone_minutes < 0 || (rest < text.size() && rest + 2 != text.size())) return std::nullopt;
  const int64_t zone = 3600 * zone_hours + 60 * zone_minutes;
  return TimeText{(ahead ? seconds - zone : seconds + zone) * kSecond + nanoseconds};
}

// ---- Words, appended to `out` ----

// Appends a whole number. bool is not a number here.
template <std::integral T>
requires(!std::same_as<T, bool>) void append_word(std::string& out, T value) {
  std::array<char, 24> text{};
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

// Appends a float. A float32 is passed as the double of the same value. `value` must be finite.
inline void append_word(std::string& out, double value) {
  constexpr double kWhole = 0x1p63;
  if (value == std::trunc(value) && std::fabs(value) < kWhole) return append_word(out, static_cast<int64_t>(value));
  std::array<char, 40> text{};
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

// A template, so that no number converts to bool.
template <std::same_as<bool> B>
void append_word(std::string& out, B value) {
  out += value ? "true" : "false";
}

// Appends the date of a number of days since 1970-01-01; outside of the years 0 to 9999 the number itself.
inline void append_date_word(std::string& out, int64_t days) {
  constexpr int64_t kFirst = -719528, kLast = 2932896;  // of the years 0 and 9999
  if (days < kFirst || days > kLast) return append_word(out, days);
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  const auto two = [&](unsigned n) {
    out += static_cast<char>('0' + n / 10);
    out += static_cast<char>('0' + n % 10);
  };
  const int year = static_cast<int>(date.year());
  two(static_cast<unsigned>(year) / 100);
  two(static_cast<unsigned>(year) % 100);
  out += '-';
  two(static_cast<unsigned>(date.month()));
  out += '-';
  two(static_cast<unsigned>(date.day()));
}

// Appends a time of day, 0 <= nanoseconds < 86,400e9: 12:34:56, with a fraction without trailing zeros.
inline void append_time_of_day_word(std::string& out, int64_t nanoseconds) {
  const auto two = [&](int64_t n) {
    out += static_cast<char>('0' + n / 10);
    out += static_cast<char>('0' + n % 10);
  };
  constexpr int64_t kSecond = 1000000000;
  const int64_t seconds = nanoseconds / kSecond;
  int64_t fraction = nanoseconds % kSecond;
  two(seconds / 3600);
  out += ':';
  two(seconds / 60 % 60);
  out += ':';
  two(seconds % 60);
  if (fraction == 0) return;
  out += '.';
  for (int64_t place = kSecond / 10; fraction > 0; place /= 10) {
    out += static_cast<char>('0' + fraction / place);
    fraction %= place;
  }
}

// Appends an instant, or a date and time without a zone: `ticks` since 1970-01-01 00:00:00, with `per_second` ticks per
// second (1, 1e3, 1e6 or 1e9).
inline void append_time_word(std::string& out, int64_t ticks, int64_t per_second) {
  const int64_t per_day = 86400 * per_second;
  int64_t days = ticks / per_day, rest = ticks % per_day;
  if (rest < 0) --days, rest += per_day;
  append_date_word(out, days);
  if (rest == 0) return;
  out += ' ';
  append_time_of_day_word(out, rest * (1000000000 / per_second));
}

// Appends a text unchanged, unless it is a number, a boolean or a time in another spelling than its word.
// * `-?digits.digits` without leading zeros loses its trailing zeros, and the point with them. Below 0.001 it becomes
//   the number, 1e-04 for 0.0001, if a double has all its digits.
// * `d.ddde+XX` with a signed exponent, as programs print large and small numbers, becomes the number.
// * True and TRUE become true; False and FALSE become false.
// * A date and time loses its T, its zone (it becomes UTC) and trailing zeros of its fraction.
inline void append_word(std::string& out, std::string_view text) {
  using values_detail::digit;
  using values_detail::digits_at;
  const auto as_it_is = [&] { out += text; };
  if (text.empty()) return;
  const char first = text[0];
  if (first == 'T' || first == 'F') {
    if (text == "True" || text == "TRUE") return append_word(out, true);
    if (text == "False" || text == "FALSE") return append_word(out, false);
    return as_it_is();
  }
  const size_t begin = first == '-' ? 1 : 0;
  if (begin == text.size() || !digit(text[begin])) return as_it_is();
  const size_t whole = digits_at(text, begin);
  size_t at = begin + whole;
  if (at == text.size()) return text == "-0" ? append_word(out, 0) : as_it_is();
  if (whole == 4 && begin == 0 && text[at] == '-' && text.size() > 10) {
    if (const auto time = time_of(text)) return append_time_word(out, time->nanoseconds, 1000000000);
    return as_it_is();
  }
  if (whole > 1 && text[begin] == '0') return as_it_is();
  size_t fraction = 0;
  if (text[at] == '.') {
    fraction = digits_at(text, at + 1);
    if (fraction == 0) return as_it_is();
    at += 1 + fraction;
  }
  if (at == text.size()) {
    while (text.back() == '0') text.remove_suffix(1);
    if (text.back() == '.') text.remove_suffix(1);
    double small = 0;               // its shortest text may have an exponent
    constexpr size_t kDigits = 15;  // that a double can represent
    if (text.substr(begin, 5) == "0.000" && text.size() <= text.find_first_not_of("0.", begin) + kDigits &&
        std::from_chars(text.data(), text.data() + text.size(), small).ec == std::errc())
      return append_word(out, small);
    return text == "-0" ? append_word(out, 0) : as_it_is();
  }
  const bool exponent = whole == 1 && (text[at] == 'e' || text[at] == 'E') && at + 2 < text.size() &&
                        (text[at + 1] == '+' || text[at + 1] == '-') && digits_at(text, at + 2) == text.size() - at - 2;
  double value = 0;
  if (!exponent || std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return as_it_is();
  append_word(out, value);
}

}  // namespace v1
}  // namespace tessera::sdk
