#include "plugin/plugin_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tessera/error.h"

namespace tessera::plugin {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void refuse_file(const auto&... parts) { fail(Code::kInvalidArgument, parts...); }

class Directory {
 public:
  Directory() : fd_(::open("/", kFlags)) {}
  ~Directory() { ::close(fd_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  int fd() const { return fd_; }
  // Enters a directory. Returns false and sets errno if `name` is not a directory, or is a link.
  bool enter(const fs::path& name) {
    const int next = ::openat(fd_, name.c_str(), kFlags);
    if (next < 0) return false;
    ::close(std::exchange(fd_, next));
    return true;
  }

 private:
  static constexpr int kFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int fd_;
};

bool is_above(const fs::path& directory, const fs::path& file) {
  const fs::path rest = file.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

struct Examined {
  const char* what;  // "the file"
  const fs::path& path;
  bool above = false;  // it is a directory above the file's folder
};

std::string distrust_of(const Examined& e, const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return str_cat(e.what, " ", e.path.native(), " belongs to user ", status.st_uid,
                   ", who is neither root nor you: chown it");
  }
  mode_t writers = status.st_mode & (S_IWGRP | S_IWOTH);
  if (e.above && status.st_gid == status.st_uid) writers &= ~static_cast<mode_t>(S_IWGRP);
  if (e.above && (status.st_mode & S_ISVTX) != 0) writers = 0;
  if (writers == 0) return "";
  const char* who = (writers & S_IWOTH) != 0 ? "everybody" : "its group";
  return str_cat(e.what, " ", e.path.native(), " may be written by ", who, ": chmod go-w it");
}

const char* why_not(int error) { return error == ELOOP ? "it is a link that leads nowhere" : std::strerror(error); }

}  // namespace

std::string identity_of(const struct stat& status) {
  return str_cat(status.st_size, " bytes at ", status.st_mtim.tv_sec, '.', status.st_mtim.tv_nsec);
}

PluginFile::PluginFile(const std::string& path, const std::string& program) : path_(path), program_(program) {
  const fs::path whole(path_), folder = whole.parent_path();
  Directory at;
  fs::path here = "/";
  const auto examine = [&](const Examined& e, int fd) {
    struct stat status {};
    if (!distrust_.empty() || (e.above && is_above(e.path, program_))) return;
    distrust_ = ::fstat(fd, &status) == 0 ? distrust_of(e, status)
                                          : str_cat(e.what, " ", e.path.native(), " cannot be examined");
  };
  for (const fs::path& name : folder.relative_path()) {
    examine({"the directory", here, true}, at.fd());
    here /= name;
    if (!at.enter(name)) refuse_file("cannot be read: ", why_not(errno));
  }
  examine({"the directory", here}, at.fd());
  fd_ = ::openat(at.fd(), whole.filename().c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd_ < 0) refuse_file("cannot be read: ", why_not(errno));
  if (::fstat(fd_, &status_) != 0 || !S_ISREG(status_.st_mode)) {
    ::close(fd_);
    refuse_file("is not a regular file");
  }
  examine({"the file", whole}, fd_);
}

PluginFile::~PluginFile() { ::close(fd_); }

void PluginFile::read(uint64_t offset, void* out, uint64_t size) const {
  auto* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_file("cannot be read: ", std::strerror(errno));
    if (got == 0) refuse_file("became shorter while it was read");
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
}

std::string PluginFile::changed() const try {
  const PluginFile now(path_, program_);
  const struct stat &a = status_, &b = now.status_;
  const bool same = a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
                    a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
  if (!same) return "has changed since it was found: start again";
  return now.distrust_ == distrust_ ? "" : str_cat("is not trusted any more: ", now.distrust_);
} catch (const Error& e) {
  return str_cat("has changed since it was found: it ", e.what());
}

}  // namespace tessera::plugin
