#include "history/time_key.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "tessera/sdk/values.h"

namespace tessera_readers {
namespace {

constexpr int kMostDigits = 19;  // all of them fit into 64 bits

// The significant digits of a number in text, which from_chars() has accepted.
struct Digits {
  uint64_t value = 0;  // without zeros at both ends
  int count = 0;
  int64_t decade = 0;  // the number is below 10^decade, and not below a tenth of that
};

// The exponent of a number in text, which begins at "e"; 0: there is none.
int64_t exponent_of(std::string_view text) {
  if (text.empty()) return 0;
  text.remove_prefix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

Digits digits_of(std::string_view text) {
  const size_t end = std::min(text.find_first_of("eE"), text.size());
  Digits out;
  int64_t zeros = 0;  // since the last other digit
  bool fraction = false;
  for (const char c : text.substr(0, end)) {
    if (c == '.') fraction = true;
    if (c < '0' || c > '9') continue;
    if (out.count > 0 && !fraction) ++out.decade;
    if (out.count == 0 && fraction && c == '0') --out.decade;
    if (c == '0') {
      if (out.count > 0) ++zeros;
      continue;
    }
    if (out.count == 0 && !fraction) ++out.decade;
    out.count += static_cast<int>(std::min<int64_t>(zeros + 1, kMostDigits + 1));
    if (out.count > kMostDigits) return out;
    for (; zeros > 0; --zeros) out.value *= 10;
    out.value = out.value * 10 + static_cast<uint64_t>(c - '0');
  }
  out.decade += exponent_of(text.substr(end));
  return out;
}

// The nearest double of 10^decade.
double power_of_ten(int64_t decade) {
  const std::string text = "1e" + std::to_string(decade);
  double out = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() ? out : HUGE_VAL;
}

// Two numbers with the same double differ in their digits. These are written as 19 digits, 1.000 to 9.999, less 1. A
// number just below a power of ten, whose double is that power, is compared with numbers above it, and is less than 0.
int64_t rest_of(double number, const Digits& digits) {
  constexpr uint64_t kOne = 1000000000000000000;
  uint64_t normal = digits.value;
  for (int k = digits.count; k < kMostDigits; ++k) normal *= 10;
  constexpr uint64_t kTen = kOne * 10, kNear = kTen - 10000;  // doubles are 1e-16 of a number apart
  if (normal >= kNear && number >= power_of_ten(digits.decade)) return -static_cast<int64_t>(kTen - normal);
  return static_cast<int64_t>(normal - kOne);
}

std::optional<TimeKey> number_in_text(std::string_view text) {
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || !std::isfinite(number)) return std::nullopt;
  if (number == 0) return TimeKey{};
  const Digits digits = digits_of(text);
  if (digits.count > kMostDigits) return std::nullopt;
  const int64_t rest = rest_of(std::abs(number), digits);
  return TimeKey{number, number < 0 ? -rest : rest};
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

bool has_too_many_digits(std::string_view text) {
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end && std::isfinite(number) && digits_of(text).count > kMostDigits;
}

std::optional<TimeKey> TimeKeys::parse(std::string_view text) {
  std::optional<TimeKey> key = form_ == Form::kTime ? std::nullopt : number_in_text(text);
  const Form form = key ? Form::kNumber : Form::kTime;
  if (!key && form_ != Form::kNumber) key = time_in_text(text);
  if (key && form_ == Form::kUnknown) form_ = form;
  return key;
}

}  // namespace tessera_readers
