// Lines of a text file, gzip or plain, through one buffer; and the fields of a line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::data {

// kNotFound when the file cannot be opened, kDataLoss when a gzip file is damaged or cut off.
class LineReader {
 public:
  explicit LineReader(const std::string& path);
  // What comes out of an open descriptor, which stays open; `name` is for errors.
  LineReader(int descriptor, std::string name);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its LF (and CR), valid until the next call. False at the end.
  bool next(std::string_view& line);
  int64_t line() const { return line_; }  // number of the last line, from 1
  // "train.tsv.gz:17"
  std::string where() const { return str_cat(path_, ":", line_); }

 private:
  bool fill();

  std::string path_;
  void* file_;  // gzFile
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool eof_ = false;
  int64_t line_ = 0;
};

// `directory`/`name`, or with ".gz" behind it, whichever exists; kNotFound otherwise.
std::string text_file(const std::string& directory, const std::string& name);

// Cuts the piece before the first `separator` off `rest`; the whole rest when there is none, then `rest` has no data().
std::string_view cut(std::string_view& rest, char separator);
inline bool finished(std::string_view rest) { return rest.data() == nullptr; }

// The whole of `text` as a number; false when it is not one.
bool parse_number(std::string_view text, int64_t& value);
bool parse_number(std::string_view text, double& value);
bool parse_number(std::string_view text, float& value);  // one that a float can be

}  // namespace tessera::data
