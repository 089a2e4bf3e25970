// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/number_text.h - numbers written as text, and messages about texts that are no numbers.
//
// Everything here is [any-thread]; only the functions that return a std::string allocate.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/sdk/values.h"

namespace tessera::sdk {
inline namespace v1 {

// Removes blanks and tabs around a text.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Parses true and false in the usual spellings: true, True, TRUE.
inline std::optional<bool> truth_of(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

// Parses a finite number with a decimal point and an optional sign. Blanks around it are ignored; true is 1 and false
// is 0. Empty: the text is something else, or a number that no double holds.
inline std::optional<double> number_of(std::string_view text) {
  text = trimmed(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc() && end == text.data() + text.size() && std::isfinite(value)) return value;
  if (const auto truth = truth_of(text)) return *truth ? 1.0 : 0.0;
  return std::nullopt;
}

// Quotes a text, up to 40 bytes of it.
inline std::string shown_text(std::string_view text) {
  constexpr size_t kMost = 40;
  return '"' + std::string(text.substr(0, kMost)) + (text.size() > kMost ? "...\"" : "\"");
}

namespace number_text_detail {

// True if `text` is a number after `left_out` is removed and `decimal` replaced by a point.
inline bool reads_as_number(std::string_view text, std::string_view left_out, char decimal) {
  std::string number;
  for (const char c : text) {
    if (c == decimal)
      number += '.';
    else if (left_out.find(c) == std::string_view::npos)
      number += c;
  }
  return std::any_of(number.begin(), number.end(), values_detail::digit) && number_of(number).has_value();
}

// The UTF-8 characters of a text that cannot be part of a number, each once.
inline std::string other_characters(std::string_view text) {
  const auto follows = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  std::string out;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    for (end = at + 1; end < text.size() && follows(text[end]);) ++end;
    const char c = text[at];
    const bool part = values_detail::digit(c) || c == '+' || c == '-' || c == '.' || c == ',' ||
                      (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const std::string_view character = text.substr(at, end - at);
    if (!part && out.find(character) == std::string::npos) out += character;
  }
  return out;
}

// True if a text has only parts of a number and digit separators between its first and last digit. Dates and times have
// other characters.
inline bool is_one_number(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t first = text.find_first_of(kDigits), last = text.find_last_of(kDigits);
  if (first == std::string_view::npos) return false;
  std::string others = other_characters(text.substr(first, last - first));
  for (const std::string_view group : {" ", "'", "_", "\xc2\xa0", "\xe2\x80\xaf"}) {
    if (const size_t at = others.find(group); at != std::string::npos) others.erase(at, group.size());
  }
  return others.empty();
}

}  // namespace number_text_detail

// The option that would make a text readable: "missing_words=true ..."; empty: none is known.
inline std::string number_advice(std::string_view text) {
  using number_text_detail::reads_as_number;
  text = trimmed(text);
  if (is_missing_word(text))
    return "the reader's option missing_words=true (reader = \"csv?missing_words=true\") reads such words as "
           "missing values";
  if (time_of(text))
    return "take = \"days\", \"hour\", \"weekday\" or \"month\" in its [[column]] makes numbers of times";
  if (!number_text_detail::is_one_number(text)) return "";
  if (text.find('(') != std::string_view::npos) return "a negative number must have a minus, not parentheses";
  const std::string others = number_text_detail::other_characters(text);
  const size_t comma = text.rfind(','), point = text.rfind('.');
  const bool has_comma = comma != std::string_view::npos, has_point = point != std::string_view::npos;
  const bool point_groups = has_comma && has_point && point < comma;  // 90.000,00
  const bool as_decimal = has_comma && reads_as_number(text, point_groups ? others + '.' : others, ',');
  const bool as_thousands = has_comma && !point_groups && reads_as_number(text, others + ',', '.');
  const std::string left_out = point_groups ? others + '.' : others;
  const std::string also = left_out.empty() ? "" : "strip = \"" + left_out + "\" ";
  if (as_decimal && as_thousands)
    return also + (also.empty() ? "" : "and ") +
           "decimal = \",\" in its [[column]] if the comma is the decimal sign, or strip = \"" + others +
           ",\" if it only groups digits";
  if (as_decimal) return also + (also.empty() ? "" : "and ") + "decimal = \",\" in its [[column]] reads it";
  if (as_thousands || (!others.empty() && reads_as_number(text, others, '.')))
    return "strip = \"" + others + (as_thousands ? "," : "") +
           "\" in its [[column]] leaves out what is not part of the number";
  return "";
}

// Returns "\"65,5\" is no number: decimal = ...".
inline std::string no_number(std::string_view text) {
  double value = 0;
  const std::string_view number = trimmed(text);
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (code == std::errc::result_out_of_range && end == number.data() + number.size())
    return shown_text(text) + " is too large or too small for a double";
  const std::string advice = number_advice(text);
  return shown_text(text) + " is not a number" + (advice.empty() ? "" : ": " + advice);
}

}  // namespace v1
}  // namespace tessera::sdk
