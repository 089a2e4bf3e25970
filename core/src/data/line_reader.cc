#include "data/line_reader.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::data {
namespace {
constexpr size_t kBuffer = size_t{1} << 18;
constexpr size_t kLongestLine = size_t{16} << 20;

bool is_file(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return false;
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode))
    fail(Code::kInvalidArgument, path,
         " is a pipe, which one rank can read only once: write its rows to a file, and name "
         "the file");
  return !S_ISDIR(info.st_mode);
}
}  // namespace

LineReader::LineReader(const std::string& path) : path_(path), buffer_(kBuffer) {
  errno = 0;
  if (!is_file(path))
    fail(Code::kNotFound, "cannot read ", path, ": ", errno ? std::strerror(errno) : "it is a directory");
  file_ = gzopen(path.c_str(), "rb");
  if (!file_) fail(Code::kNotFound, "cannot read ", path, ": ", std::strerror(errno));
  gzbuffer(static_cast<gzFile>(file_), 1u << 17);
}

LineReader::LineReader(int descriptor, std::string name) : path_(std::move(name)), buffer_(kBuffer) {
  const int own = ::dup(descriptor);
  file_ = own < 0 ? nullptr : gzdopen(own, "rb");
  if (!file_) {
    const std::string why = std::strerror(errno);
    if (own >= 0) ::close(own);
    fail(Code::kNotFound, "cannot read ", path_, ": ", why);
  }
}

LineReader::~LineReader() { gzclose(static_cast<gzFile>(file_)); }

// Moves the unfinished line to the front and reads more after it.
bool LineReader::fill() {
  if (eof_) return false;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) {
    if (buffer_.size() >= kLongestLine) {
      fail(Code::kInvalidArgument, path_, ":", line_ + 1, ": the line is longer than ", kLongestLine, " bytes");
    }
    buffer_.resize(buffer_.size() * 2);
  }
  const int n = gzread(static_cast<gzFile>(file_), buffer_.data() + end_, static_cast<unsigned>(buffer_.size() - end_));
  int code = Z_OK;
  const char* text = gzerror(static_cast<gzFile>(file_), &code);
  if (n < 0 || (n == 0 && code != Z_OK && code != Z_STREAM_END)) {
    fail(Code::kDataLoss, path_, " is damaged or cut off after line ", line_, ": ", text);
  }
  eof_ = n == 0;
  end_ += static_cast<size_t>(n);
  return n > 0;
}

bool LineReader::next(std::string_view& line) {
  size_t searched = 0;
  for (;;) {
    const char* start = buffer_.data() + begin_;
    const size_t length = end_ - begin_;
    const void* lf = searched < length ? std::memchr(start + searched, '\n', length - searched) : nullptr;
    if (lf || (eof_ && length > 0)) {
      size_t n = lf ? static_cast<size_t>(static_cast<const char*>(lf) - start) : length;
      begin_ += n + (lf ? 1 : 0);
      if (n > 0 && start[n - 1] == '\r') --n;
      line = {start, n};
      ++line_;
      return true;
    }
    if (eof_) return false;
    searched = length;
    fill();
  }
}

std::string text_file(const std::string& directory, const std::string& name) {
  std::string path = directory + "/" + name;
  if (is_file(path)) return path;
  if (is_file(path + ".gz")) return path + ".gz";
  fail(Code::kNotFound, "there is neither ", path, " nor ", path, ".gz");
}

std::string_view cut(std::string_view& rest, char separator) {
  const size_t at = rest.find(separator);
  const std::string_view piece = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return piece;
}

bool parse_number(std::string_view text, int64_t& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool parse_number(std::string_view text, double& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && !text.empty() && value - value == 0;
}

bool parse_number(std::string_view text, float& value) {
  double exact = 0;
  if (!parse_number(text, exact) || std::abs(exact) > std::numeric_limits<float>::max()) return false;
  value = static_cast<float>(exact);
  return true;
}

}  // namespace tessera::data
