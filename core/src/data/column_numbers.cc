#include "data/column_numbers.h"

#include <algorithm>
#include <chrono>

#include "data/time_format.h"
#include "tessera/sdk/number_text.h"

namespace tessera::data {
namespace {

constexpr int64_t kSecond = 1000000000, kDay = 86400 * kSecond;

int64_t time_in(std::string_view text, const std::string& format) {
  if (!format.empty()) {
    if (const auto time = time_by(format, text)) return *time;
    throw NoNumber(sdk::shown_text(text) + " is not a time as time_format \"" + format + "\" says");
  }
  if (const auto time = sdk::time_of(text)) return time->nanoseconds;
  const auto number = sdk::number_of(text);
  if (const auto nanoseconds = number ? time_of_number(*number) : std::nullopt) return *nanoseconds;
  throw NoNumber(sdk::shown_text(text) +
                 " is not a time: a date as in 2024-01-31, with or without a time after it as in 12:34:56, or a "
                 "number of seconds (from 100000000 on), milliseconds, microseconds or nanoseconds since 1970 is "
                 "expected; time_format reads other forms, as \"%d.%m.%Y %H:%M\" does");
}

bool is_missing(const ColumnConfig& c, std::string_view field) {
  if (field.empty()) return true;
  if (!numbers_in_text(c)) return false;
  const auto same = [&](const std::string& word) { return sdk::trimmed(word) == field; };
  return sdk::is_missing_word(field) || std::any_of(c.missing_words.begin(), c.missing_words.end(), same);
}

int64_t floor_divided(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// A unit that is counted, in nanoseconds; 0: `take` counts nothing.
int64_t unit_of(const std::string& take) {
  return take == "days" ? kDay : take == "hours" ? 3600 * kSecond : take == "minutes" ? 60 * kSecond : 0;
}

double counted(int64_t nanoseconds, const ColumnConfig& c, int64_t since) {
  const int64_t from = nanoseconds - since;
  const int64_t unit = unit_of(c.take), whole = floor_divided(from, unit);
  if (from < 0 && !c.since.empty())
    throw NoNumber(str_cat("the time is earlier than since = \"", c.since, "\": set an earlier one"));
  return static_cast<double>(whole) + static_cast<double>(from - whole * unit) / static_cast<double>(unit);
}

double taken_of(int64_t nanoseconds, const ColumnConfig& c, int64_t since) {
  const std::string& take = c.take;
  if (counts_time(c)) return counted(nanoseconds, c, since);
  const int64_t day = floor_divided(nanoseconds, kDay);
  const int64_t hour = (nanoseconds - day * kDay) / (3600 * kSecond);
  if (take == "hour") return static_cast<double>(hour);
  if (take == "weekday") return static_cast<double>((day % 7 + 10) % 7);  // 0 is Monday; day 0 was a Thursday
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(day))};
  return static_cast<double>(static_cast<unsigned>(date.month()) - 1);
}

// True if every `mark` stands between groups of digits: at most three first, then two or three, and three at the end.
bool groups_digits(std::string_view text, char mark) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
    size_t before = 0, after = 0;
    while (before < at && is_digit(text[at - before - 1])) ++before;
    while (at + after + 1 < text.size() && is_digit(text[at + after + 1])) ++after;
    const size_t end = at + after + 1;
    const bool last = end >= text.size() || text[end] != mark;
    if (before < 1 || before > 3 || after > 3 || after < (last ? 3U : 2U)) return false;
  }
  return true;
}

// Applies `decimal` and `strip` to a text.
std::string plain_number(const ColumnConfig& c, std::string_view text) {
  std::string out;
  const char decimal = c.decimal.empty() ? '.' : c.decimal[0];
  for (const char mark : {'.', ','}) {
    if (mark == decimal || c.strip.find(mark) == std::string::npos || groups_digits(text, mark)) continue;
    throw NoNumber(str_cat(sdk::shown_text(text), " is not a number with decimal = \"", decimal, "\" and strip = \"",
                           c.strip, "\": a ", mark == '.' ? "point" : "comma",
                           " in it does not group digits in threes"));
  }
  for (const char character : text) {
    if (c.strip.find(character) != std::string::npos) continue;
    if (character == '.' && decimal != '.')
      throw NoNumber(sdk::shown_text(text) + " is not a number with decimal = \"" + c.decimal +
                     (groups_digits(text, '.') ? "\": strip = \".\" leaves out points that group digits"
                                               : "\": write a comma there, or leave decimal out"));
    out += character == decimal ? '.' : character;
  }
  return out;
}

}  // namespace

bool takes_time(const ColumnConfig& c) { return c.take != "value" && c.take != "missing"; }
bool counts_time(const ColumnConfig& c) { return unit_of(c.take) != 0; }

std::optional<int64_t> time_of_number(double number) {
  constexpr double kFirst = 1e8, kLast = 9.2e9;  // seconds
  for (const double per_second : {1.0, 1e3, 1e6, 1e9}) {
    const double seconds = std::fabs(number) / per_second;
    if (seconds < kFirst || seconds > kLast) continue;
    const double whole = std::floor(number / per_second);
    const double rest = number - whole * per_second;
    return static_cast<int64_t>(whole) * kSecond + static_cast<int64_t>(rest * (1e9 / per_second));
  }
  return std::nullopt;
}

int64_t rows_taken(const ColumnConfig& c) {
  return c.take == "hour" ? 24 : c.take == "weekday" ? 7 : c.take == "month" ? 12 : c.take == "missing" ? 2 : 0;
}

bool numbers_in_text(const ColumnConfig& c) {
  return c.take != "value" || !c.decimal.empty() || !c.strip.empty() || !c.missing_words.empty();
}

int64_t since_of(const ColumnConfig& c) { return c.since.empty() ? 0 : sdk::time_of(c.since)->nanoseconds; }

double number_in(const ColumnConfig& c, std::string_view text, int64_t since) {
  const std::string_view field = sdk::trimmed(text);
  const bool missing = is_missing(c, field);
  if (c.take == "missing") return missing ? 1 : 0;
  if (missing) return kMissing;
  if (takes_time(c)) return taken_of(time_in(field, c.time_format), c, since);
  const bool written = !c.decimal.empty() || !c.strip.empty();
  const auto number = sdk::number_of(written ? std::string_view(plain_number(c, field)) : field);
  if (!number) throw NoNumber(sdk::no_number(text));
  return *number;
}

double number_at(const ColumnNumbers& numbers, int64_t i, const BlockRows& at, int64_t row, const std::string& column) {
  try {
    return numbers.at(i);
  } catch (const NoNumber& e) {
    fail(Code::kInvalidArgument, at.where(row, column), ": ", e.what());
  }
}

}  // namespace tessera::data
