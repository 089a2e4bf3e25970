#include "csv_records.h"

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

}  // namespace tessera_readers
