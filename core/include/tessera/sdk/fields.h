// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/fields.h - splits a line into fields, parses whole fields as numbers, and hashes them to rows.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace tessera::sdk {
inline namespace v1 {

// Returns the text before the first `separator` and removes both from `rest`. Without a separator it returns all of
// `rest`, which is then finished().
inline std::string_view cut(std::string_view& rest, char separator) {
  const size_t at = rest.find(separator);
  const std::string_view piece = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return piece;
}
inline bool finished(std::string_view rest) { return rest.data() == nullptr; }

// These parse the whole of `text` as a finite number. False: `text` is no such number.
inline bool parse_number(std::string_view text, int64_t& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}
inline bool parse_number(std::string_view text, double& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty() && std::isfinite(value);
}
inline bool parse_number(std::string_view text, float& value) {  // false also if it does not fit
  double exact = 0;
  if (!parse_number(text, exact) || std::abs(exact) > std::numeric_limits<float>::max()) return false;
  value = static_cast<float>(exact);
  return true;
}

namespace detail {
constexpr uint64_t fnv1a(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}
}  // namespace detail

// Row of the value `prefix` + `text`: row_of("g=", "Comedy", 256). It is the 64-bit FNV-1a of the bytes after
// MurmurHash3's finalizer without its last step. It must never change, because prepared files and models depend on it.
constexpr int64_t row_of(std::string_view prefix, std::string_view text, int64_t rows) {
  uint64_t h = detail::fnv1a(text, detail::fnv1a(prefix, 0xcbf29ce484222325u));
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
  return static_cast<int64_t>((h ^ (h >> 33)) % static_cast<uint64_t>(rows));
}

}  // namespace v1
}  // namespace tessera::sdk
