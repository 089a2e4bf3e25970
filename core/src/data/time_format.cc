#include "data/time_format.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace tessera::data {
namespace {

constexpr int64_t kNanoseconds = 1000000000;  // per second
constexpr std::string_view kKnown = "YymbBdHIMSfpzaA%";

bool is_letter_in(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

bool same_word(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) { return small(a) == b; });
}

// Reads a text by one part of a format after the other.
class TimeParser {
 public:
  explicit TimeParser(std::string_view text) : rest_(text) {}

  bool part(char what) {
    switch (what) {
      case 'Y':
        return number(4, 4, year_);
      case 'y':
        if (!number(2, 2, year_)) return false;
        year_ += year_ < 69 ? 2000 : 1900;
        return true;
      case 'm':
        return number(1, 2, month_);
      case 'b':
      case 'B':
        return month_name();
      case 'd':
        return number(1, 2, day_);
      case 'H':
      case 'I':
        return number(1, 2, hour_) && hour_ < 24 && (what == 'H' || (hour_ >= 1 && hour_ <= 12));
      case 'M':
        return number(1, 2, minute_) && minute_ < 60;
      case 'S':
        return number(1, 2, second_) && second_ < 61;
      case 'f':
        return fraction();
      case 'p':
        return half_day();
      case 'z':
        return zone();
      case 'a':
      case 'A':
        return word().size() >= 2;
      default:
        return literal('%');
    }
  }

  bool literal(char c) {
    if (is_blank(c)) {
      const bool any = !rest_.empty() && is_blank(rest_[0]);
      while (!rest_.empty() && is_blank(rest_[0])) rest_.remove_prefix(1);
      return any;
    }
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<int64_t> time() const {
    if (!rest_.empty() || year_ < 1678 || year_ > 2261) return std::nullopt;
    const std::chrono::year_month_day date{std::chrono::year(year_), std::chrono::month(static_cast<unsigned>(month_)),
                                           std::chrono::day(static_cast<unsigned>(day_))};
    if (!date.ok()) return std::nullopt;
    int hour = hour_;
    if (half_ >= 0) hour = hour % 12 + 12 * half_;
    const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
    return ((days * 24 + hour) * 60 + minute_ - zone_minutes_) * 60 * kNanoseconds + second_ * kNanoseconds + fraction_;
  }

 private:
  bool number(size_t least, size_t most, int& out) {
    out = 0;
    size_t count = 0;
    for (; count < most && count < rest_.size() && rest_[count] >= '0' && rest_[count] <= '9'; ++count)
      out = 10 * out + (rest_[count] - '0');
    rest_.remove_prefix(count);
    return count >= least;
  }

  std::string_view word() {
    size_t count = 0;
    while (count < rest_.size() && is_letter_in(rest_[count])) ++count;
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }

  bool month_name() {
    static constexpr std::array<std::string_view, 12> kMonths = {"january",   "february", "march",    "april",
                                                                 "may",       "june",     "july",     "august",
                                                                 "september", "october",  "november", "december"};
    const std::string_view name = word();
    for (size_t m = 0; m < kMonths.size(); ++m) {
      if (!same_word(name, kMonths[m]) && !same_word(name, kMonths[m].substr(0, 3))) continue;
      month_ = static_cast<int>(m) + 1;
      return true;
    }
    return false;
  }

  bool half_day() {
    if (rest_.size() < 2 || small(rest_[1]) != 'm' || (small(rest_[0]) != 'a' && small(rest_[0]) != 'p')) return false;
    half_ = small(rest_[0]) == 'p' ? 1 : 0;
    rest_.remove_prefix(2);
    return true;
  }

  bool fraction() {
    int64_t place = kNanoseconds;
    size_t count = 0;
    for (; count < rest_.size() && rest_[count] >= '0' && rest_[count] <= '9'; ++count)
      fraction_ += (place /= 10) * (rest_[count] - '0');
    rest_.remove_prefix(count);
    return count > 0;
  }

  bool zone() {
    if (literal('Z')) return true;
    const bool west = !rest_.empty() && rest_[0] == '-';
    int hours = 0, minutes = 0;
    if ((!west && (rest_.empty() || rest_[0] != '+')) || rest_.size() < 5) return false;
    rest_.remove_prefix(1);
    if (!number(2, 2, hours)) return false;
    literal(':');
    if (!number(2, 2, minutes)) return false;
    const int64_t east = int64_t{60} * hours + minutes;
    zone_minutes_ = west ? -east : east;
    return hours < 24 && minutes < 60;
  }

  std::string_view rest_;
  int year_ = 0, month_ = 1, day_ = 1, hour_ = 0, minute_ = 0, second_ = 0;
  int half_ = -1;  // 0: a.m., 1: p.m.
  int64_t fraction_ = 0, zone_minutes_ = 0;
};

constexpr std::array<std::string_view, 30> kDates = {
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y",  "%d-%m-%Y", "%m-%d-%Y",     "%Y/%m/%d",    "%Y.%m.%d",      "%Y-%m-%d",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",  "%d-%m-%y", "%m-%d-%y",     "%d-%b-%Y",    "%d %b %Y",      "%d/%b/%Y",
    "%d-%b-%y", "%d%b%Y",   "%b %d, %Y", "%b %d %Y", "%a, %d %b %Y", "%a %d %b %Y", "%a, %b %d, %Y", "%Y-%b-%d",
    "%Y%m%d",   "%b-%Y",    "%b %Y",     "%b-%y",    "%m/%Y",        "%Y-%m"};
constexpr std::array<std::string_view, 13> kTimes = {
    "",          " %H:%M:%S",   " %H:%M",   " %H:%M:%S.%f", "T%H:%M:%S", "T%H:%M:%S.%f", " %I:%M:%S %p",
    " %I:%M %p", " %I:%M:%S%p", " %I:%M%p", ":%H:%M:%S",    "-%H.%M.%S", "T%H%M%S"};
constexpr std::array<std::string_view, 5> kZones = {"", "%z", " %z", " GMT", " UTC"};

bool fits_all(const std::string& format, const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return time_by(format, text).has_value(); });
}

}  // namespace

std::string wrong_time_format(std::string_view format) {
  std::string seen;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') continue;
    if (++at == format.size()) return "ends with %: %% is a percent sign";
    if (kKnown.find(format[at]) == std::string_view::npos)
      return std::string("has %") + format[at] + ", but only %Y %y %m %b %B %d %H %I %p %M %S %f %z %a %A are known";
    if (format[at] != '%' && seen.find(format[at]) != std::string::npos)
      return std::string("has %") + format[at] + " twice";
    seen += format[at];
  }
  const auto has = [&](std::string_view any) { return seen.find_first_of(any) != std::string::npos; };
  if (!has("Yy")) return "has no year: %Y or %y";
  if (!has("mbB")) return "has no month: %m, %b or %B";
  if (has("I") != has("p")) return "must have %I and %p together: hours from 1 to 12, and AM or PM";
  return "";
}

std::optional<int64_t> time_by(std::string_view format, std::string_view text) {
  TimeParser parser(text);
  for (size_t at = 0; at < format.size(); ++at) {
    const bool fits =
        format[at] == '%' && at + 1 < format.size() ? parser.part(format[++at]) : parser.literal(format[at]);
    if (!fits) return std::nullopt;
  }
  return parser.time();
}

std::vector<std::string> time_formats_of(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  if (texts.empty()) return out;
  const auto try_format = [&](const std::string& format) {
    if (fits_all(format, texts)) out.push_back(format);
  };
  for (const std::string_view date : kDates) {
    for (const std::string_view time : kTimes) {
      for (const std::string_view zone : kZones) {
        if (!time.empty() || zone.empty()) try_format(std::string(date) + std::string(time) + std::string(zone));
      }
    }
  }
  for (const char* zone : {"", "%z ", "UTC ", "GMT "}) try_format(std::string("%a %b %d %H:%M:%S ") + zone + "%Y");
  try_format("%Y-%m-%d %H");
  return out;
}

}  // namespace tessera::data
