#include "tessera/config.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tessera/error.h"

namespace tessera {
namespace {

// Closes the file that it opened.
struct Opened {
  explicit Opened(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Opened() {
    if (fd >= 0) ::close(fd);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  const int fd;
};

}  // namespace

std::string read_file(const std::string& path, const std::string& what, const std::string& advice) {
  const auto refuse = [&](int error) {
    const bool wrong_path = error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES;
    fail(wrong_path ? Code::kNotFound : Code::kUnavailable, what, path, ": ", std::generic_category().message(error),
         advice);
  };
  const Opened file(path);
  if (file.fd < 0) refuse(errno);
  std::string text;
  std::array<char, 1 << 16> piece;
  while (true) {
    const ssize_t n = ::read(file.fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(errno);
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
  }
}

}  // namespace tessera
