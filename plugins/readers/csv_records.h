// Finds the ends of CSV records and fields (RFC 4180). A field that begins with a quote goes on to the next single
// quote, and may contain delimiters, line feeds, and doubled quotes.
#pragma once

#include <string>
#include <string_view>

namespace tessera_readers {

struct CsvFormat {
  char delimiter = ',';
  bool quotes = true;              // false: a quote is an ordinary character
  const char* encoding = nullptr;  // iconv(3)'s name; null: UTF-8
};

// Finds the ends of records in a buffer, one after the other.
class RecordEnds {
 public:
  explicit RecordEnds(CsvFormat format) : format_(format) {}
  // Call before the first record of a buffer, and if its bytes have moved.
  void start_buffer() { quote_ = nullptr; }
  // The line feed after the record that begins at `at`; null if the record goes on after `end`.
  const char* find(const char* at, const char* end);
  bool quoted() const { return quoted_; }  // true if the record of the last find() may contain a quote

 private:
  const char* find_quoted(const char* at, const char* end) const;

  CsvFormat format_;
  const char* quote_ = nullptr;  // next quote in the buffer, or its end if there is none; null: not searched yet
  bool quoted_ = false;
};

// The field that begins at `at`, in a record that may have quotes and ends at `end`: its text, which is in `scratch` if
// quotes were removed. Moves `at` to the delimiter after it, or to `end`. Returns false if a quote is not closed, or is
// not followed by a delimiter.
bool next_field(const char*& at, const char* end, CsvFormat format, std::string& scratch, std::string_view& field);

// Removes the byte-order mark of UTF-8 from the beginning of a file.
std::string_view without_mark(std::string_view text);

// True if a line above the header has no text: blanks and delimiters only.
bool is_blank_line(std::string_view line, char delimiter);

// The delimiter that Excel's first line `sep=;` names; 0 if the line is another one.
char named_delimiter(std::string_view line);

}  // namespace tessera_readers
