#include "history/time_key.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tessera/sdk/values.h"

namespace tessera_readers {
namespace {

constexpr int64_t kExact = int64_t{1} << 53;  // up to here a double holds every integer

TimeKey of_integer(int64_t x) {
  if (x >= -kExact && x <= kExact) return {static_cast<double>(x), 0};
  constexpr int64_t kLow = int64_t{1} << 20;
  const int64_t rest = x & (kLow - 1);
  return {static_cast<double>(x - rest), rest};
}

std::optional<TimeKey> number_in_text(std::string_view text) {
  const char* const end = text.data() + text.size();
  int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, whole); error == std::errc() && at == end)
    return of_integer(whole);
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || !std::isfinite(number)) return std::nullopt;
  constexpr double kMost = 9e18;
  if (std::abs(number) < kMost && number == std::floor(number)) return of_integer(static_cast<int64_t>(number));
  return TimeKey{number, 0};
}

std::optional<TimeKey> time_in_text(std::string_view text) {
  const auto time = tessera::sdk::time_of(text);
  if (!time) return std::nullopt;
  constexpr int64_t kSecond = 1000000000;
  int64_t seconds = time->nanoseconds / kSecond, rest = time->nanoseconds % kSecond;
  if (rest < 0) --seconds, rest += kSecond;
  return TimeKey{static_cast<double>(seconds), rest};
}

}  // namespace

std::optional<TimeKey> TimeKeys::parse(std::string_view text) {
  std::optional<TimeKey> key = form_ == Form::kTime ? std::nullopt : number_in_text(text);
  const Form form = key ? Form::kNumber : Form::kTime;
  if (!key && form_ != Form::kNumber) key = time_in_text(text);
  if (key && form_ == Form::kUnknown) form_ = form;
  return key;
}

}  // namespace tessera_readers
