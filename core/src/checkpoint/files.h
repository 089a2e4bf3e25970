// Reads and writes files at offsets. Errors name the path. kResourceExhausted: a full disk or quota. kNotFound: a
// missing file. kDataLoss: a file that is too short. kUnavailable: any other error of the system.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/error.h"

namespace tessera::checkpoint {

// Throws an error for errno `error`: "cannot <what> <path>: No space left on device".
[[noreturn]] void fail_with(int error, const char* what, const std::string& path);

// An open file descriptor. Movable, not copyable.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// The CRC-32 (zlib's) of a file whose pieces several processes write in any order. Bytes that nobody writes are zeros.
// CRC-32 is linear: a file's sum is the XOR of its pieces' sums, each moved by the number of bytes after it.
class PieceSum {
 public:
  void add(int64_t offset, const void* data, int64_t bytes);
  // part(): what these pieces add to the sum of a file of `file_bytes`. crc32(): a file's sum from the XOR of all
  // parts.
  uint32_t part(int64_t file_bytes) const;
  static uint32_t crc32(uint32_t parts, int64_t file_bytes);

 private:
  int64_t end_ = 0;  // the end of the last piece in the file
  uint32_t sum_ = 0;
};

// A file as a manifest lists it.
struct StoredFile {
  std::string name;  // a path relative to the manifest
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32 of the whole file
};

class OutputFile {
 public:
  // Makes a file of `bytes` zeros, or truncates an old one. Reserves the space if the file system can do that.
  OutputFile(const std::string& path, int64_t bytes);
  // Opens a file that another process has made this way.
  static OutputFile join(const std::string& path, int64_t bytes);
  // Starts to write the data back to the disk soon, so that sync() has little left to do.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  void sync();
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // sum_part(): PieceSum::part() of the data written here. crc32(): the file's CRC-32, if nobody else writes to it.
  uint32_t sum_part() const { return sum_.part(size_); }
  uint32_t crc32() const { return PieceSum::crc32(sum_part(), size_); }

 private:
  OutputFile(const std::string& path, int64_t bytes, int flags);

  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
  int64_t unsynced_ = 0;
  PieceSum sum_;
};

class InputFile {
 public:
  explicit InputFile(const std::string& path);
  int64_t size() const { return size_; }
  void read_at(int64_t offset, void* into, int64_t bytes) const;
  // Returns the CRC-32 (zlib's) of a range.
  uint32_t crc32(int64_t first, int64_t bytes) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
};

// Reads or writes a small file as a whole. write_text() syncs it and returns the text's CRC-32.
std::string read_text(const std::string& path);
uint32_t write_text(const std::string& path, const std::string& text);

// Syncs the names in a directory, so that they are as durable as the files.
void sync_directory(const std::string& path);

}  // namespace tessera::checkpoint
