// Where records and fields of CSV end (RFC 4180): a field that begins with a quote goes on to the next single one, and
// may hold delimiters, line feeds, and quotes that are written twice.
#pragma once

#include <string>
#include <string_view>

namespace tessera_readers {

struct CsvFormat {
  char delimiter = ',';
  bool quotes = true;              // false: a quote is a character like any other
  const char* encoding = nullptr;  // iconv(3)'s name; null: UTF-8
};

// Finds the ends of records in a buffer, one after the other.
class RecordEnds {
 public:
  explicit RecordEnds(CsvFormat format) : format_(format) {}
  // Before the first record of a buffer, or where its bytes have moved.
  void start_buffer() { quote_ = nullptr; }
  // The line feed behind the record that begins at `at`; null where it goes on behind `end`.
  const char* find(const char* at, const char* end);
  bool quoted() const { return quoted_; }  // there may be a quote in the record of the last find()

 private:
  const char* find_quoted(const char* at, const char* end) const;

  CsvFormat format_;
  const char* quote_ = nullptr;  // the next one in the buffer, its end where there is none; null: not looked for
  bool quoted_ = false;
};

// The field that begins at `at`, in a record that may have quotes and ends at `end`: its text, which is in `scratch`
// where quotes were taken out. Moves `at` to the delimiter behind it, or to `end`. False: a quote is not closed, or not
// followed by a delimiter.
bool next_field(const char*& at, const char* end, CsvFormat format, std::string& scratch, std::string_view& field);

}  // namespace tessera_readers
