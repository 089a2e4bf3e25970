// The text of a file: decompressed if the file is gzip or zstd by its first bytes, and as UTF-8 if its encoding is
// known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace tessera_readers {

// Why a file cannot be read to its end: "is cut off", "is damaged (incorrect data check)".
class Damaged : public std::runtime_error {
 public:
  explicit Damaged(const std::string& what, size_t read = 0) : std::runtime_error(what), read_(read) {}
  size_t read() const { return read_; }  // bytes that read() has put there all the same

 private:
  size_t read_;
};

// A descriptor's bytes in their order. Those that were looked at beforehand come again.
class Input {
 public:
  explicit Input(int file) : file_(file) {}
  // The first bytes, at most n, which are read once more; not of what can be gone back in.
  std::string look(size_t n);
  // What there is, at most n; 0: the end. Throws Damaged.
  size_t read(char* to, size_t n);
  // Whether there is something, or the end, after at most about so long.
  bool wait(double seconds) const;

 private:
  int file_;
  std::string looked_at_;
};

class TextFile {
 public:
  // "-" is standard input. Failure(TSR_NOT_FOUND), and (TSR_UNIMPLEMENTED) for zstd where that was left out of the
  // build. `encoding`: iconv(3)'s name of what the text is in; null: bytes are read as they are.
  explicit TextFile(const std::string& path, const char* encoding = nullptr);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& path() const { return path_; }
  // It can only be read in its order: it is compressed, or its encoding is changed.
  bool compressed() const { return decoder_ != nullptr; }
  int64_t offset() const { return offset_; }  // in the text, of what is read next
  // Fewer than `n` at the end alone. Throws Damaged.
  size_t read(char* to, size_t n);
  // What there is of plain text, 0 at the end alone; of compressed text as read(). Throws Damaged.
  size_t read_some(char* to, size_t n);
  // Whether read_some() has something, or the end, after at most about so long. (Compressed: read_some() waits.)
  bool wait(double seconds) const { return decoder_ != nullptr || input_.wait(seconds); }
  // Goes to a place in the text. In a compressed file it reads what is between, from the start where that is behind.
  void seek(int64_t offset);

  // Text out of compressed bytes.
  class Decoder;

 private:
  void rewind();

  std::string path_;
  const char* encoding_;
  int file_ = -1;
  Input input_;
  int64_t offset_ = 0;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace tessera_readers
