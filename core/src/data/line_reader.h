// Reads lines of a text file, gzip or plain, through one buffer, and splits them into fields.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::data {

// kNotFound: the file cannot be opened. kDataLoss: a gzip file is damaged or truncated.
class LineReader {
 public:
  explicit LineReader(const std::string& path);
  // Reads an open descriptor, which stays open; `name` is for errors.
  LineReader(int descriptor, std::string name);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Gets the next line without its LF (and CR), valid until the next call. False at the end.
  bool next(std::string_view& line);
  int64_t line() const { return line_; }  // number of the last line, from 1
  // Returns "train.tsv.gz:17".
  std::string where() const { return str_cat(path_, ":", line_); }

 private:
  bool fill();

  std::string path_;
  void* file_;  // a gzFile
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool eof_ = false;
  int64_t line_ = 0;
};

// Returns `directory`/`name`, or the same with ".gz", whichever exists. kNotFound: neither does.
std::string text_file(const std::string& directory, const std::string& name);

// Returns the text before the first `separator` and removes both from `rest`. Without a separator it returns all of
// `rest`, which then has no data().
std::string_view cut(std::string_view& rest, char separator);
inline bool finished(std::string_view rest) { return rest.data() == nullptr; }

// Parses the whole of `text` as a number. False: it is none.
bool parse_number(std::string_view text, int64_t& value);
bool parse_number(std::string_view text, double& value);
bool parse_number(std::string_view text, float& value);  // false also if it does not fit

}  // namespace tessera::data
