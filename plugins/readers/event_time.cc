#include "event_time.h"

#include <charconv>
#include <limits>

#include "tessera/sdk/values.h"

namespace tessera_readers {

double event_time(double number) {
  constexpr double kMilliseconds = 1e11, kMicroseconds = 1e14, kNanoseconds = 1e17;
  if (number >= kNanoseconds) return number / 1e9;
  return number >= kMicroseconds ? number / 1e6 : number >= kMilliseconds ? number / 1e3 : number;
}

double event_time(std::string_view text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && end == text.data() + text.size()) return event_time(number);
  const auto time = tessera::sdk::time_of(text);
  constexpr int64_t kSecond = 1000000000;
  if (!time) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(time->nanoseconds / kSecond) + 1e-9 * static_cast<double>(time->nanoseconds % kSecond);
}

}  // namespace tessera_readers
