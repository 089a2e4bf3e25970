#include "data/toml_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tessera/error.h"
#include "wrapped.h"

namespace tessera::cli {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  constexpr char kDelete = 0x7f;  // TOML takes it only as an escape, JSON also as it is
  for (size_t at = 0; (at = out.find(kDelete, at)) != std::string::npos;) out.replace(at, 1, "\\u007F");
  return out;
}

std::string plain_number(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) <= kExact) return str_cat(static_cast<int64_t>(value));
  std::array<char, 40> text{};
  char* const end = text.data() + text.size();
  // TOML's whole numbers have 64 bits.
  if (std::abs(value) > kExact)
    return {text.data(), std::to_chars(text.data(), end, value, std::chars_format::scientific).ptr};
  return {text.data(), std::to_chars(text.data(), end, value).ptr};
}

std::string short_number(double value) {
  if (value == std::floor(value)) return plain_number(value);
  std::array<char, 40> text{};
  const int digits = std::abs(value) >= 1000 ? 0 : 4;
  if (digits == 0) return plain_number(std::round(value));
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
  return {text.data(), end.ptr};
}

std::string rounded(double value, double step) {
  constexpr double kLarge = 1e15;
  if (std::abs(value) >= kLarge) return plain_number(value);
  constexpr int kMost = 17;  // decimals
  const int decimals = step > 0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(step))), 0, kMost) : kMost;
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  std::string out(text.data(), end.ptr);
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

std::string date_text(double days) {
  const std::chrono::sys_days day{std::chrono::days{static_cast<int64_t>(std::floor(days))}};
  const std::chrono::year_month_day date{day};
  char text[32];
  std::snprintf(text, sizeof(text), "%04d-%02u-%02u", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  return text;
}

std::string comment(const std::string& text) { return wrapped(text, "# ", "# "); }

std::string commented(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += str_cat("# ", text.substr(at, end - at), "\n");
    at = end + 1;
  }
  return out;
}

std::string listed(const std::vector<std::string>& texts, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(most, texts.size()); ++i) out += str_cat(i == 0 ? "" : ", ", quoted(texts[i]));
  return out + (texts.size() > most ? ", ..." : "");
}

}  // namespace tessera::cli
