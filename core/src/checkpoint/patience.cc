#include "checkpoint/patience.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "checkpoint/files.h"
#include "tessera/error.h"

namespace tessera::checkpoint {

namespace fs = std::filesystem;

bool may_pass(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case EINVAL:
    case ENAMETOOLONG:
    case EROFS:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EBADF:
    case ENXIO:
    case ELOOP:
      return false;
    default:
      return true;
  }
}

bool wait_before_retry(int tries) {
  constexpr int kMostTries = 5;
  if (tries >= kMostTries) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100 * tries));
  return true;
}

mode_t type_of(const std::string& path) {
  struct stat info {};
  if (patiently([&] { return ::stat(path.c_str(), &info); }) == 0) return info.st_mode & S_IFMT;
  if (errno == ENOENT || errno == ENOTDIR) return 0;
  fail_with(errno, "look at", path);
}

std::vector<std::string> names_in(const std::string& directory) {
  for (int tries = 1;; ++tries) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
      names.push_back(it->path().filename().string());
    if (!error) return names;
    if (!may_pass(error.value()) || !wait_before_retry(tries)) fail_with(error.value(), "list", directory);
  }
}

std::string absolute_directory(const std::string& directory, const char* what) {
  if (directory.empty()) fail(Code::kInvalidArgument, what);
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(directory), error);
  if (error) fail_with(error.value(), "resolve", directory);
  if (!path.has_filename()) path = path.parent_path();
  return path.string();
}

bool make_directories(const std::string& directory) {
  std::error_code error;
  const fs::path target = fs::absolute(directory, error);
  fs::path first = target;  // the highest directory that is missing
  while (!error && first.has_relative_path() && type_of(first.parent_path().string()) == 0) first = first.parent_path();
  const bool made = !error && fs::create_directories(target, error);
  if (error) fail_with(error.value(), "create", directory);
  if (!made) return false;
  for (fs::path path = target;; path = path.parent_path()) {
    try {
      sync_directory(path.parent_path().string());
    } catch (const Error&) {  // a directory that cannot be read, for example; its name is as durable as possible
    }
    if (path == first || !path.has_relative_path()) return true;
  }
}

}  // namespace tessera::checkpoint
