#include "csv_records.h"

#include <algorithm>
#include <cstring>

namespace tessera_readers {
namespace {

const char* find_byte(const char* at, const char* end, char c) {
  return static_cast<const char*>(std::memchr(at, c, static_cast<size_t>(end - at)));
}

const char* find_delimiter(const char* at, const char* end, char delimiter) {
  while (at < end && *at != delimiter) ++at;
  return at;
}

}  // namespace

const char* RecordEnds::find(const char* at, const char* end) {
  const char* line = at < end ? find_byte(at, end, '\n') : nullptr;
  quoted_ = false;
  if (!format_.quotes) return line;
  if (quote_ == nullptr || quote_ < at) {
    quote_ = at < end ? find_byte(at, end, '"') : nullptr;
    if (quote_ == nullptr) quote_ = end;
  }
  if (line != nullptr ? line < quote_ : quote_ == end) return line;
  quoted_ = true;
  return find_quoted(at, end);
}

const char* RecordEnds::find_quoted(const char* at, const char* end) const {
  for (;;) {
    if (at < end && *at == '"') {
      do {
        at = find_byte(at + 1, end, '"');
        if (at == nullptr) return nullptr;
        ++at;
      } while (at < end && *at == '"');
    }
    while (at < end && *at != format_.delimiter && *at != '\n') ++at;
    if (at == end) return nullptr;
    if (*at == '\n') return at;
    ++at;
  }
}

bool next_field(const char*& at, const char* end, CsvFormat format, std::string& scratch, std::string_view& field) {
  const char* begin = at;
  if (!format.quotes || at == end || *at != '"') {
    at = find_delimiter(at, end, format.delimiter);
    field = {begin, static_cast<size_t>(at - begin)};
    return true;
  }
  ++begin;
  scratch.clear();
  for (;;) {
    const char* quote = begin < end ? find_byte(begin, end, '"') : nullptr;
    if (quote == nullptr) return false;
    scratch.append(begin, quote);
    at = quote + 1;
    if (at == end || *at != '"') break;
    scratch += '"';
    begin = at + 1;
  }
  field = scratch;
  return at == end || *at == format.delimiter;
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

bool is_blank_line(std::string_view line, char delimiter) {
  return std::all_of(line.begin(), line.end(), [&](char c) { return c == ' ' || c == '\t' || c == delimiter; });
}

char named_delimiter(std::string_view line) {
  constexpr std::string_view kWord = "sep=";
  if (line.size() == kWord.size() + 3 && line.front() == '"' && line.back() == '"')
    line = line.substr(1, line.size() - 2);
  if (line.size() != kWord.size() + 1) return 0;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  const bool named =
      std::equal(kWord.begin(), kWord.end(), line.begin(), [&](char a, char b) { return a == lower(b); });
  return named ? line.back() : '\0';
}

}  // namespace tessera_readers
