#include "kept_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>

#include "processes.h"
#include "tessera/config.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

// The descriptor that a path names; -1 if it names none.
int descriptor_of(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    path.remove_prefix(folder.size());
    int number = -1;
    const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), number);
    return error == std::errc() && end == path.data() + path.size() ? number : -1;
  }
  return -1;
}

bool is_read_once(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ||
         (S_ISCHR(status.st_mode) && isatty(descriptor_of(path)) == 1);
}

}  // namespace

std::string keep_file(const std::string& path) {
  if (!is_read_once(path)) return path;
  const std::string text = read_file(path);
  const int kept = memfd_create("tessera-config", 0);  // inherited by the ranks
  const int known = descriptor_of(path);
  bool whole = kept >= 0;
  for (size_t done = 0; whole && done < text.size();) {
    const ssize_t n = write(kept, text.data() + done, text.size() - done);
    whole = n > 0 || (n < 0 && errno == EINTR);
    if (n > 0) done += static_cast<size_t>(n);
  }
  if (!whole || (known >= 0 && dup2(kept, known) < 0))
    fail(Code::kResourceExhausted, "cannot keep ", path, " for the ranks: ", system_error(), "; give a file instead");
  if (known < 0) return str_cat("/proc/self/fd/", kept);
  close(kept);
  return path;
}

}  // namespace tessera::cli
