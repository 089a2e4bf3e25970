// Files read and written at offsets. Errors name the path: kResourceExhausted for a full disk or quota, kNotFound for a
// missing file, kDataLoss for one that is too short, kUnavailable for everything else that the system refuses.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/error.h"

namespace tessera::checkpoint {

// Throws for errno `error`: "cannot <what> <path>: No space left on device".
[[noreturn]] void fail_with(int error, const char* what, const std::string& path);

// An open descriptor. Moves, does not copy.
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

// The CRC-32 (zlib's) of a file of which several processes write pieces, in any order: bytes that nobody writes are
// zeros. CRC-32 is linear, so a file's is the sum (^) of its pieces', each moved by the bytes behind it.
class PieceSum {
 public:
  void add(int64_t offset, const void* data, int64_t bytes);
  // What these pieces add to the sum of a file of so many bytes; and the CRC-32 of one, of the ^ of all such parts.
  uint32_t part(int64_t file_bytes) const;
  static uint32_t crc32(uint32_t parts, int64_t file_bytes);

 private:
  int64_t end_ = 0;  // of the last piece in the file
  uint32_t sum_ = 0;
};

// A file as a manifest lists it.
struct StoredFile {
  std::string name;  // beside the manifest
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32 of the whole file
};

class OutputFile {
 public:
  // A new file of `bytes` zeros, or an emptied old one. Space is reserved where the file system can do that.
  OutputFile(const std::string& path, int64_t bytes);
  // One that another process has made so.
  static OutputFile join(const std::string& path, int64_t bytes);
  // What was written is on its way to the disk soon, so that sync() has little left to do.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  void sync();
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // PieceSum::part() of what was written here; and the file's CRC-32 where nobody else has written any of it.
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
  // CRC-32 (zlib's) of a range.
  uint32_t crc32(int64_t first, int64_t bytes) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
};

// A small file as a whole; written, it is on the disk, and the CRC-32 of the text is returned.
std::string read_text(const std::string& path);
uint32_t write_text(const std::string& path, const std::string& text);

// Makes the names in a directory as durable as the files themselves.
void sync_directory(const std::string& path);

}  // namespace tessera::checkpoint
