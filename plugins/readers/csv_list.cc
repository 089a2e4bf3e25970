#include "csv_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "csv_column.h"
#include "tessera/sdk/number_text.h"
#include "tessera/sdk/printed_list.h"

namespace tessera_readers {
namespace {

using tessera::sdk::shown_text;
using tessera::sdk::trimmed;

constexpr std::string_view kOpen = "[{(", kClose = "]})", kQuotes = "'\"", kBlanks = " \t\r\n";

// The position after the closing quote of the text that begins at `at` with a quote; the end of `text` if there is
// none.
size_t behind_quoted(std::string_view text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) at += text[at] == '\\' ? 1 : 0;
  return std::min(at + 1, text.size());
}

// True for a quote that begins an item; an apostrophe inside a word does not.
bool begins_item(std::string_view text, size_t at) {
  if (kQuotes.find(text[at]) == std::string_view::npos) return false;
  while (at > 0 && kBlanks.find(text[at - 1]) != std::string_view::npos) --at;
  return at > 0 && std::string_view("[{(,;|").find(text[at - 1]) != std::string_view::npos;
}

// True if `c` occurs outside quotes.
bool is_between_items(std::string_view text, char c) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == c) return true;
    if (begins_item(text, at)) at = behind_quoted(text, at) - 1;
  }
  return false;
}

// The position of the bracket that closes the first character; npos if there is none.
size_t closing(std::string_view text) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (begins_item(text, at)) {
      at = behind_quoted(text, at) - 1;
      continue;
    }
    if (kOpen.find(text[at]) != std::string_view::npos) ++depth;
    if (kClose.find(text[at]) != std::string_view::npos && --depth == 0)
      return kClose[kOpen.find(text[0])] == text[at] ? at : std::string_view::npos;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

// True if there are several words separated by blanks, all of them numbers.
bool are_numbers(std::string_view text) {
  int count = 0;
  for (text = trimmed(text); !text.empty(); ++count) {
    const size_t end = std::min(text.find_first_of(kBlanks), text.size());
    if (!tessera::sdk::number_of(text.substr(0, end))) return false;
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  }
  return count > 1;
}

std::string_view without_quotes(std::string_view item) {
  const bool quoted =
      item.size() > 1 && item.front() == item.back() && kQuotes.find(item.front()) != std::string_view::npos;
  return quoted ? item.substr(1, item.size() - 2) : item;
}

}  // namespace

std::string_view BracketedList::inside(std::string_view field) {
  if (field.empty()) return {};
  if (kOpen.find(field[0]) == std::string_view::npos) return tessera::sdk::list_inside(field);
  const bool whole = closing(field) + 1 == field.size();
  if (field[0] == '(' && !(whole && (is_between_items(field, ',') || field == "()"))) return {};  // "(500)" is a text
  if (whole) return field;
  throw WrongField(shown_text(field) + " begins with " + field[0] + " but does not end like a list");
}

BracketedList::BracketedList(std::string_view list, char separator)
    : rest_(list.substr(1, list.size() - 2)), field_(list), separator_(separator) {
  const bool blank = kBlanks.find(separator) != std::string_view::npos;
  if (!blank && is_between_items(list, separator)) return;
  if (is_between_items(list, ','))
    separator_ = ',';
  else if (blank || are_numbers(rest_))
    separator_ = ' ';
}

void BracketedList::skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size())); }

bool BracketedList::next(std::string_view& item, std::string_view& weight) {
  skip_blanks();
  if (rest_.empty()) return false;
  weight = {};
  // Python 2 and bytes: u'a', b'a'.
  if (rest_.size() > 1 && std::string_view("uUbB").find(rest_[0]) != std::string_view::npos &&
      kQuotes.find(rest_[1]) != std::string_view::npos)
    rest_.remove_prefix(1);
  quoted_ = kQuotes.find(rest_[0]) != std::string_view::npos;
  if (kOpen.find(rest_[0]) != std::string_view::npos)
    throw WrongField(shown_text(field_) + " has a list or an object in its list");
  if (quoted_) {
    take_quoted();
    item = scratch_;
    skip_blanks();
    if (!rest_.empty() && rest_[0] == ':') weight = trimmed(to_separator().substr(1));
  } else {
    item = trimmed(to_separator());
    const size_t colon = field_[0] == '{' ? item.find(':') : std::string_view::npos;
    if (colon != std::string_view::npos) {
      weight = trimmed(item.substr(colon + 1));
      item = trimmed(item.substr(0, colon));
    }
    if (item.find(" ... ") != std::string_view::npos || item == "...")
      throw WrongField(shown_text(field_) + " is a list of which only a part was printed");
    item = without_quotes(tessera::sdk::item_inside(item));
    if (item == "None" || item == "null" || item == "nan" || item == "NaN") item = {};
  }
  if (item.empty()) throw WrongField("there is a value missing in the list " + shown_text(field_));
  const bool next_quoted = !rest_.empty() && kQuotes.find(rest_[0]) != std::string_view::npos;
  if (!rest_.empty() && rest_[0] == separator_)
    rest_.remove_prefix(1);  // the last item of a tuple may also have one
  else if (!rest_.empty() && separator_ != ' ' && !next_quoted)
    throw WrongField(shown_text(field_) + " has text after a quote in its list");
  return true;
}

// The text before the next separator, or all of it.
std::string_view BracketedList::to_separator() {
  const size_t at = separator_ == ' ' ? rest_.find_first_of(kBlanks) : rest_.find(separator_);
  const std::string_view out = rest_.substr(0, at);
  rest_.remove_prefix(out.size());
  return out;
}

void BracketedList::take_quoted() {
  const size_t end = behind_quoted(rest_, 0);
  if (end < 2 || rest_[end - 1] != rest_[0]) throw WrongField(shown_text(field_) + " has a quote that is not closed");
  std::string_view text = rest_.substr(1, end - 2);
  rest_.remove_prefix(end);
  scratch_.clear();
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c != '\\' || text.empty()) {
      scratch_ += c;
      continue;
    }
    const char escaped = text[0];
    text.remove_prefix(1);
    constexpr std::string_view kNames = "nrtbf", kMeant = "\n\r\t\b\f";
    if (escaped == 'u' && text.size() >= 4) {
      take_unicode(text);
    } else {
      const size_t at = kNames.find(escaped);
      scratch_ += at == std::string_view::npos ? escaped : kMeant[at];
    }
  }
}

// Takes four hexadecimal digits, or twice four for characters beyond 16 bits.
void BracketedList::take_unicode(std::string_view& text) {
  const auto four = [](std::string_view digits, uint32_t& out) {
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + 4, out, 16);
    return code == std::errc() && end == digits.data() + 4;
  };
  uint32_t high = 0, low = 0;
  if (!four(text, high)) throw WrongField(shown_text(field_) + " has \\u without four hexadecimal digits");
  text.remove_prefix(4);
  if (high >= 0xd800 && high < 0xdc00 && text.size() >= 6 && text.starts_with("\\u") && four(text.substr(2), low)) {
    text.remove_prefix(6);
    high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(scratch_, high);
}

}  // namespace tessera_readers
