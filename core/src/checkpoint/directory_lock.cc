#include "checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>

#include "checkpoint/patience.h"

namespace tessera::checkpoint {
namespace {

constexpr mode_t kOwner = S_IRUSR | S_IWUSR;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 64> text{};
  ::gmtime_r(&now, &parts);
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

std::string this_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return str_cat("process ", ::getpid(), " on ", host.data(), " since ", utc_now());
}

std::string text_in(int fd) {
  std::array<char, 512> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  std::string out(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return out.substr(0, out.find('\n'));
}

bool is_busy(int error) { return error == EAGAIN || error == EACCES; }

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const char* use)
    : directory_(absolute_directory(directory, "a checkpoint needs the path of a directory")),
      path_(str_cat(directory_, '/', kLockFile)) {
  if (const mode_t type = type_of(directory_); type != 0 && type != S_IFDIR)
    fail(Code::kAlreadyExists, directory_, " is a file: checkpoints need a directory");
  made_ = make_directories(directory_);
  for (int tries = 1; !try_lock(use); ++tries) {
    if (wait_before_retry(tries)) continue;
    const std::string who = text_in(fd_.get());
    fail(Code::kUnavailable, "another job ", use, ' ', directory_, ": ", who.empty() ? "its process is not known" : who,
         " (", path_, "); end it, or name another directory");
  }
}

// False: another job has the lock, or has just released it.
bool DirectoryLock::try_lock(const char* use) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  fd_ = Descriptor(patiently([&] { return ::open(path_.c_str(), kFlags, kOwner); }));
  if (const int error = errno; fd_.get() < 0 && (error == EACCES || error == EPERM || error == EROFS)) {
    fail(Code::kInvalidArgument, "cannot open ", path_, ": ", std::generic_category().message(error), "; a job that ",
         use, ' ', directory_, " writes there: name another directory, or grant it write access");
  }
  struct stat mine {
  }, there{};
  if (fd_.get() < 0 || ::fstat(fd_.get(), &mine) != 0) fail_with(errno, "open", path_);
  if (!S_ISREG(mine.st_mode)) fail(Code::kAlreadyExists, path_, " is not a file, but must be the lock file of a job");
  if ((mine.st_mode & (S_IRWXG | S_IRWXO)) != 0) (void)::fchmod(fd_.get(), kOwner);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd_.get(), F_OFD_SETLK, &whole) != 0) {
    if (is_busy(errno)) return false;
    warning_ = str_cat("cannot lock ", path_, ": ", std::generic_category().message(errno),
                       "; another job could write to ", directory_);
  } else if (::stat(path_.c_str(), &there) != 0 || there.st_ino != mine.st_ino || there.st_dev != mine.st_dev) {
    return false;  // the previous job removed its file when it ended
  }
  const std::string text = this_process() + '\n';  // only for people to read, so a full disk does not matter
  if (::ftruncate(fd_.get(), 0) == 0) (void)(::pwrite(fd_.get(), text.data(), text.size(), 0) < 0);
  return true;
}

DirectoryLock::~DirectoryLock() {
  ::unlink(path_.c_str());
  std::error_code ignored;
  if (made_) std::filesystem::remove(directory_, ignored);
}

void lock_shared(int fd) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && ::flock(fd, LOCK_SH | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace tessera::checkpoint
