// Reads the text of a file: decompressed if its first bytes are those of gzip or zstd, and converted to UTF-8 if its
// encoding is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace tessera_readers {

// The reason why a file cannot be read to its end: "is cut off", "is damaged (incorrect data check)".
class Damaged : public std::runtime_error {
 public:
  explicit Damaged(const std::string& what, size_t read = 0) : std::runtime_error(what), read_(read) {}
  size_t read() const { return read_; }  // bytes that read() has nevertheless written

 private:
  size_t read_;
};

// Reads a descriptor's bytes in order. Bytes returned by look() are read again.
class Input {
 public:
  explicit Input(int file) : file_(file) {}
  // The first bytes, at most n, which will be read again; not for files that can seek.
  std::string look(size_t n);
  // Reads available bytes, at most n; returns 0 at the end. Throws Damaged.
  size_t read(char* to, size_t n);
  // True if there are bytes, or the end, within about this time.
  bool wait(double seconds) const;

 private:
  int file_;
  std::string looked_at_;
};

class TextFile {
 public:
  // "-" is standard input. Throws Failure(TSR_NOT_FOUND), and Failure(TSR_UNIMPLEMENTED) for zstd in a build without
  // it. `encoding` is iconv(3)'s name of the text's encoding; null: bytes are read unchanged.
  explicit TextFile(const std::string& path, const char* encoding = nullptr);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& path() const { return path_; }
  // True if the file can only be read in order, because it is compressed or its encoding is converted.
  bool compressed() const { return decoder_ != nullptr; }
  int64_t offset() const { return offset_; }  // position in the text of the next read
  // Returns fewer than `n` bytes only at the end. Throws Damaged.
  size_t read(char* to, size_t n);
  // Reads available bytes of plain text, 0 only at the end; works like read() for compressed text. Throws Damaged.
  size_t read_some(char* to, size_t n);
  // True if read_some() has bytes, or the end, within about this time. (For compressed files, read_some() waits.)
  bool wait(double seconds) const { return decoder_ != nullptr || input_.wait(seconds); }
  // Goes to a position in the text. In a compressed file it reads what is between, from the start if the position is
  // before the current one.
  void seek(int64_t offset);

  // Decodes bytes to text.
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
