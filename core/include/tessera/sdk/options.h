// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/options.h - the options of a component: one flat JSON object, checked strictly.
//
//   double lr = options.number("learning_rate", 0.01);
//
// Reading a key makes it known. After the constructor returns, unread keys are refused, with the nearest known one.
// Values are numbers, strings, true/false and arrays of numbers. A component with richer options calls text() and
// parses the text itself; then nothing is checked here.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/sdk/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera::sdk {
inline namespace v1 {

namespace detail {

using OptionValue = std::variant<double, std::string, bool, std::vector<double>>;
struct Option {
  std::string key;
  OptionValue value;
};

// A recursive-descent parser of this subset of JSON.
class OptionParser {
 public:
  explicit OptionParser(std::string_view text) : text_(text) {}

  std::vector<Option> parse() {
    std::vector<Option> out;
    expect('{');
    if (!accept('}')) {
      do {
        std::string key = string();
        for (const Option& o : out) {
          if (o.key == key) fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" is given twice");
        }
        expect(':');
        out.push_back({std::move(key), value()});
      } while (accept(','));
      expect('}');
    }
    skip();
    if (at_ != text_.size()) wrong("the end");
    return out;
  }

 private:
  [[noreturn]] void wrong(const char* wanted) const {
    fail(TSR_INVALID_ARGUMENT, "options are not a flat JSON object: expected ", wanted, " at byte ", at_, " of ",
         text_.substr(0, 200));
  }
  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    const char wanted[] = {'\'', c, '\'', '\0'};
    if (!accept(c)) wrong(wanted);
  }
  bool accept_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  OptionValue value() {
    skip();
    if (at_ >= text_.size()) wrong("a value");
    if (text_[at_] == '"') return string();
    if (accept_word("true")) return true;
    if (accept_word("false")) return false;
    if (!accept('[')) return number();
    std::vector<double> numbers;
    if (accept(']')) return numbers;
    do {
      skip();
      numbers.push_back(number());
    } while (accept(','));
    expect(']');
    return numbers;
  }
  double number() {
    const std::string_view rest = text_.substr(at_);
    const size_t sign = rest.starts_with('-') ? 1 : 0;
    if (rest.size() <= sign || rest[sign] < '0' || rest[sign] > '9') wrong("a number, string, true, false or array");
    // libc++ has std::from_chars only for integers.
    std::istringstream text{std::string(rest.substr(0, rest.find_first_not_of("0123456789+-.eE")))};
    text.imbue(std::locale::classic());
    double out = 0;
    if (!(text >> out) || text.peek() != std::istringstream::traits_type::eof())
      wrong("a number that fits into 64 bits");
    at_ += static_cast<size_t>(text.str().size());
    return out;
  }
  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) wrong("a string without control characters");
      if (text_[at_] != '\\') {
        out += text_[at_++];
        continue;
      }
      ++at_;
      out += escaped();
    }
    expect('"');
    return out;
  }
  std::string escaped() {
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const size_t i = kLetters.find(c);
    if (c != '\0' && i != std::string_view::npos) {
      ++at_;
      return std::string(1, kMeanings[i]);
    }
    if (c != 'u') wrong("an escape of JSON");
    ++at_;
    uint32_t point = hex4();
    if (point >= 0xD800 && point < 0xDC00 && accept_word("\\u")) {
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) wrong("the second half of a surrogate pair");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    } else if (point >= 0xD800 && point < 0xE000) {
      wrong("a whole surrogate pair");
    }
    return utf8(point);
  }
  uint32_t hex4() {
    const std::string_view digits = text_.substr(at_, 4);
    uint32_t out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    if (error != std::errc() || end != digits.data() + 4) wrong("four hexadecimal digits");
    at_ += 4;
    return out;
  }
  static std::string utf8(uint32_t p) {
    auto tail = [&](int shift) { return static_cast<char>(0x80 | ((p >> shift) & 0x3F)); };
    if (p < 0x80) return {static_cast<char>(p)};
    if (p < 0x800) return {static_cast<char>(0xC0 | (p >> 6)), tail(0)};
    if (p < 0x10000) return {static_cast<char>(0xE0 | (p >> 12)), tail(6), tail(0)};
    return {static_cast<char>(0xF0 | (p >> 18)), tail(12), tail(6), tail(0)};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace detail

class Options {
 public:
  // If the text is no such object, the first use throws Failure(TSR_INVALID_ARGUMENT).
  explicit Options(std::string_view text) : text_(text) {}

  // Each returns `otherwise` for a missing key, and refuses values of another type.
  double number(std::string_view key, double otherwise) { return get<double>(key, otherwise, "a number"); }
  bool flag(std::string_view key, bool otherwise) { return get<bool>(key, otherwise, "true or false"); }
  std::string string(std::string_view key, std::string_view otherwise) {
    return get<std::string>(key, std::string(otherwise), "a string");
  }
  std::vector<double> numbers(std::string_view key, std::vector<double> otherwise) {
    return get<std::vector<double>>(key, std::move(otherwise), "an array of numbers");
  }
  int64_t integer(std::string_view key, int64_t otherwise) {
    return whole(key, number(key, static_cast<double>(otherwise)));
  }
  std::vector<int64_t> integers(std::string_view key, const std::vector<int64_t>& otherwise) {
    if (!has(key)) return otherwise;
    std::vector<int64_t> out;
    for (double d : numbers(key, {})) out.push_back(whole(key, d));
    return out;
  }
  // Returns the index of the value in `words`; the first word is the default.
  size_t word(std::string_view key, const std::vector<std::string>& words) {
    const std::string given = string(key, words.at(0));
    const auto at = std::find(words.begin(), words.end(), given);
    if (at != words.end()) return static_cast<size_t>(at - words.begin());
    std::string all = words[0];
    for (size_t i = 1; i < words.size(); ++i) (all += i + 1 < words.size() ? ", " : " or ") += words[i];
    fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" is \"", given, "\", but must be ", all);
  }
  bool has(std::string_view key) {
    know(key);
    return find(key) != nullptr;
  }

  // The text itself, for another parser.
  const std::string& text() {
    strict_ = false;
    return text_;
  }

  // Refuses unread keys. The SDK calls it after the object is made.
  void finish() {
    if (!strict_) return;
    for (const detail::Option& o : all()) {
      if (std::find(known_.begin(), known_.end(), o.key) != known_.end()) continue;
      if (known_.empty()) fail(TSR_INVALID_ARGUMENT, "unknown option \"", o.key, "\": there are none");
      const std::string nearest = nearest_name(o.key, known_);
      if (shares_letters(o.key, nearest))
        fail(TSR_INVALID_ARGUMENT, "unknown option \"", o.key, "\": the nearest known one is \"", nearest, "\"");
      std::string all_known;
      for (const std::string& name : known_) all_known += (all_known.empty() ? "\"" : ", \"") + name + "\"";
      fail(TSR_INVALID_ARGUMENT, "unknown option \"", o.key, "\": there are ", all_known);
    }
  }

 private:
  const std::vector<detail::Option>& all() {
    if (!parsed_) {
      options_ = detail::OptionParser(text_).parse();
      parsed_ = true;
    }
    return options_;
  }
  const detail::Option* find(std::string_view key) {
    for (const detail::Option& o : all()) {
      if (o.key == key) return &o;
    }
    return nullptr;
  }
  void know(std::string_view key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  }
  template <class T>
  T get(std::string_view key, T otherwise, const char* type) {
    know(key);
    const detail::Option* option = find(key);
    if (option == nullptr) return otherwise;
    const T* value = std::get_if<T>(&option->value);
    if (value == nullptr) fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" must be ", type);
    return *value;
  }
  static int64_t whole(std::string_view key, double value) {
    if (value != std::floor(value) || std::abs(value) > 9007199254740992.0) {
      fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" must be a whole number, not ", value);
    }
    return static_cast<int64_t>(value);
  }

  std::string text_;
  bool parsed_ = false;
  bool strict_ = true;
  std::vector<detail::Option> options_;
  std::vector<std::string> known_;
};

}  // namespace v1
}  // namespace tessera::sdk
