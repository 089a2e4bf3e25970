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

class OutputFile {
 public:
  // A new file of `bytes` zeros, or an emptied old one. Space is reserved where the file system can do that.
  OutputFile(const std::string& path, int64_t bytes);
  // Every now and then what was written is also sent to the disk, so that sync() has little left to do.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  void sync();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor fd_;
  int64_t unsynced_ = 0;
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

// A small file as a whole.
std::string read_text(const std::string& path);

// Makes the names in a directory as durable as the files themselves.
void sync_directory(const std::string& path);

}  // namespace tessera::checkpoint
