#include "event_time.h"

#include <charconv>
#include <chrono>
#include <limits>
#include <optional>

namespace tessera_readers {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// What is left of a text, from the left.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}
  bool empty() const { return text_.empty(); }
  bool take(char c) {
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  // Exactly so many digits.
  std::optional<int> digits(size_t count) {
    int out = 0;
    if (text_.size() < count) return std::nullopt;
    const auto [end, code] = std::from_chars(text_.data(), text_.data() + count, out);
    if (code != std::errc() || end != text_.data() + count || text_[0] == '-') return std::nullopt;
    text_.remove_prefix(count);
    return out;
  }
  double fraction() {
    double out = 0, place = 1;
    for (; !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; text_.remove_prefix(1))
      out += (place /= 10) * (text_[0] - '0');
    return out;
  }

 private:
  std::string_view text_;
};

// Seconds of the day, and those that the zone is ahead taken off.
std::optional<double> time_of_day(Scan& scan) {
  if (!scan.take('T') && !scan.take(' ')) return std::nullopt;
  const auto hour = scan.digits(2);
  if (!hour || !scan.take(':')) return std::nullopt;
  const auto minute = scan.digits(2);
  if (!minute || *hour > 24 || *minute > 59) return std::nullopt;
  double out = 3600.0 * *hour + 60.0 * *minute;
  if (scan.take(':')) {
    const auto second = scan.digits(2);
    if (!second || *second > 60) return std::nullopt;
    out += *second;
    if (scan.take('.')) out += scan.fraction();
  }
  if (scan.take('Z')) return out;
  const bool ahead = scan.take('+');
  if (!ahead && !scan.take('-')) return out;
  const auto zone_hours = scan.digits(2);
  if (!zone_hours) return std::nullopt;
  (void)scan.take(':');
  const int zone_minutes = scan.digits(2).value_or(0);
  const double zone = 3600.0 * *zone_hours + 60.0 * zone_minutes;
  return out - (ahead ? zone : -zone);
}

}  // namespace

double event_time(double number) {
  constexpr double kMilliseconds = 1e11, kMicroseconds = 1e14;
  return number >= kMicroseconds ? number / 1e6 : number >= kMilliseconds ? number / 1e3 : number;
}

double event_time(std::string_view text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && end == text.data() + text.size()) return event_time(number);
  Scan scan(text);
  const auto year = scan.digits(4);
  if (!year || !scan.take('-')) return kNone;
  const auto month = scan.digits(2);
  if (!month || !scan.take('-')) return kNone;
  const auto day = scan.digits(2);
  if (!day) return kNone;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return kNone;
  const double midnight = 86400.0 * std::chrono::sys_days(date).time_since_epoch().count();
  if (scan.empty()) return midnight;
  const auto seconds = time_of_day(scan);
  return seconds && scan.empty() ? midnight + *seconds : kNone;
}

}  // namespace tessera_readers
