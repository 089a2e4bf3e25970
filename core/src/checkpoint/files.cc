#include "checkpoint/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "checkpoint/patience.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kSyncEvery = int64_t{64} << 20;
constexpr int64_t kReadBlock = int64_t{1} << 20;
constexpr uint32_t kStart = 0xffffffff;  // initial value and final XOR of the CRC register

// moved(): the sum after `bytes` more zero bytes. zeros(): the sum of `bytes` zero bytes.
uint32_t moved(uint32_t sum, int64_t bytes) {
  return bytes == 0 ? sum : static_cast<uint32_t>(::crc32_combine(sum, 0, static_cast<z_off_t>(bytes)));
}
uint32_t zeros(int64_t bytes) { return moved(kStart, bytes) ^ kStart; }

// Explains why a file may not grow, if the limit is this process's own.
std::string size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return str_cat(" (files of this process may have ", limit.rlim_cur, " bytes: raise ulimit -f)");
}

}  // namespace

void fail_with(int error, const char* what, const std::string& path) {
  Code code = Code::kUnavailable;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = Code::kResourceExhausted;
  if (error == ENOENT) code = Code::kNotFound;
  fail(code, "cannot ", what, ' ', path, ": ", std::generic_category().message(error),
       error == EFBIG ? size_limit() : "");
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  const Descriptor dropped(std::move(*this));
  fd_ = other.fd_;
  other.fd_ = -1;
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void PieceSum::add(int64_t offset, const void* data, int64_t bytes) {
  const auto crc =
      static_cast<uint32_t>(::crc32_z(0, static_cast<const unsigned char*>(data), static_cast<size_t>(bytes)));
  const uint32_t piece = crc ^ zeros(bytes);
  const int64_t end = offset + bytes;
  if (end >= end_) {
    sum_ = moved(sum_, end - end_) ^ piece;
    end_ = end;
  } else {
    sum_ ^= moved(piece, end_ - end);
  }
}

uint32_t PieceSum::part(int64_t file_bytes) const { return moved(sum_, file_bytes - end_); }

uint32_t PieceSum::crc32(uint32_t parts, int64_t file_bytes) { return parts ^ zeros(file_bytes); }

OutputFile::OutputFile(const std::string& path, int64_t bytes, int flags)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666)), size_(bytes) {
  if (fd_.get() < 0) fail_with(errno, flags ? "create" : "open", path);
}

OutputFile OutputFile::join(const std::string& path, int64_t bytes) { return {path, bytes, 0}; }

OutputFile::OutputFile(const std::string& path, int64_t bytes) : OutputFile(path, bytes, O_CREAT | O_TRUNC) {
  if (bytes == 0) return;
  if (::fallocate(fd_.get(), 0, 0, bytes) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    fail_with(errno, str_cat("reserve ", bytes, " bytes for").c_str(), path);
  }
  if (::ftruncate(fd_.get(), bytes) != 0) fail_with(errno, "size", path);
}

void OutputFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  sum_.add(offset, data, bytes);
  const char* from = static_cast<const char*>(data);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t n = ::pwrite(fd_.get(), from, static_cast<size_t>(left), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_with(n < 0 ? errno : ENOSPC, "write", path_);
    from += n;
    offset += n;
    left -= n;
  }
  unsynced_ += bytes;
  if (unsynced_ < kSyncEvery) return;
  unsynced_ = 0;
  // Waits for the previous writes, and starts those that have come since.
  constexpr unsigned kSend = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE;
  if (::sync_file_range(fd_.get(), 0, 0, kSend) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    fail_with(errno, "write", path_);
}

void OutputFile::sync() {
  if (::fsync(fd_.get()) != 0) fail_with(errno, "write", path_);
  unsynced_ = 0;
}

InputFile::InputFile(const std::string& path)
    : path_(path), fd_(patiently([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); })) {
  if (fd_.get() < 0) fail_with(errno, "open", path);
  struct stat info {};
  if (patiently([&] { return ::fstat(fd_.get(), &info); }) != 0) fail_with(errno, "open", path);
  if (!S_ISREG(info.st_mode)) fail(Code::kUnavailable, "cannot open ", path, ": it is not a file");
  size_ = info.st_size;
}

void InputFile::read_at(int64_t offset, void* into, int64_t bytes) const {
  char* to = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t n = patiently([&] { return ::pread(fd_.get(), to, static_cast<size_t>(bytes), offset); });
    if (n < 0) fail_with(errno, "read", path_);
    if (n == 0) fail(Code::kDataLoss, path_, " ends at byte ", offset, ", and ", bytes, " more bytes were expected");
    to += n;
    offset += n;
    bytes -= n;
  }
}

uint32_t InputFile::crc32(int64_t first, int64_t bytes) const {
  std::vector<unsigned char> block(static_cast<size_t>(std::min(bytes, kReadBlock)));
  uLong crc = 0;
  for (int64_t done = 0; done < bytes;) {
    const int64_t n = std::min(bytes - done, kReadBlock);
    read_at(first + done, block.data(), n);
    crc = ::crc32(crc, block.data(), static_cast<uInt>(n));
    done += n;
  }
  return static_cast<uint32_t>(crc);
}

std::string read_text(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, text.data(), file.size());
  return text;
}

uint32_t write_text(const std::string& path, const std::string& text) {
  const auto bytes = static_cast<int64_t>(text.size());
  OutputFile file(path, bytes);
  file.write_at(0, text.data(), bytes);
  file.sync();
  return file.crc32();
}

void sync_directory(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync a directory (EINVAL) and do not need it.
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) fail_with(errno, "write", path);
}

}  // namespace tessera::checkpoint
