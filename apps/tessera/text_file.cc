#include "text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "processes.h"
#include "tessera/error.h"
#include "tessera/sdk/fd.h"

namespace tessera::cli {

std::string read_text(const std::string& path, const std::string& what) {
  const sdk::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 1 << 16> block;
  while (file.get() >= 0) {
    const ssize_t n = ::read(file.get(), block.data(), block.size());
    if (n == 0) return text;
    if (n > 0) text.append(block.data(), static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  const bool wrong_path = errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == EACCES;
  fail(wrong_path ? Code::kNotFound : Code::kUnavailable, what, path, ": ", system_error());
}

}  // namespace tessera::cli
