// To be preloaded: of the calls that change files below TESSERA_FAIL_UNDER, the one with the number TESSERA_FAIL_AT
// fails with TESSERA_FAIL_WITH: an errno; 0: it kills the process; -1: it does half of what it should.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum class Fault { kNone, kFails, kHalf };

int number(const char* variable) {
  const char* const text = getenv(variable);
  return text ? atoi(text) : 0;
}

bool is_below(const char* path) {
  const char* const under = getenv("TESSERA_FAIL_UNDER");
  return under && strncmp(path, under, strlen(under)) == 0;
}

Fault fault_of(const char* path) {
  static std::atomic<int> calls = 0;
  if (!is_below(path) || calls.fetch_add(1) + 1 != number("TESSERA_FAIL_AT")) return Fault::kNone;
  static const char kSaid[] = "the disk has failed\n";
  if (write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1) < 0) abort();
  const int with = number("TESSERA_FAIL_WITH");
  if (with == 0) kill(getpid(), SIGKILL);
  if (with < 0) return Fault::kHalf;
  errno = with;
  return Fault::kFails;
}

Fault fault_of(int fd) {
  char path[PATH_MAX] = "";
  if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1) < 0) return Fault::kNone;
  return fault_of(path);
}

template <class Call>
Call real(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) && fault_of(path) == Fault::kFails) return -1;
  static const auto call = real<int (*)(const char*, int, ...)>("open");
  return call(path, flags, mode);
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  const Fault fault = fault_of(fd);
  if (fault == Fault::kFails) return -1;
  static const auto call = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return call(fd, data, fault == Fault::kHalf ? (bytes + 1) / 2 : bytes, offset);
}

int fsync(int fd) {
  if (fault_of(fd) == Fault::kFails) return -1;
  static const auto call = real<int (*)(int)>("fsync");
  return call(fd);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (fault_of(fd) == Fault::kFails) return -1;
  static const auto call = real<int (*)(int, int, off_t, off_t)>("fallocate");
  return call(fd, mode, offset, bytes);
}

int ftruncate(int fd, off_t bytes) noexcept {
  if (fault_of(fd) == Fault::kFails) return -1;
  static const auto call = real<int (*)(int, off_t)>("ftruncate");
  return call(fd, bytes);
}

int rename(const char* from, const char* to) noexcept {
  if (fault_of(from) == Fault::kFails) return -1;
  static const auto call = real<int (*)(const char*, const char*)>("rename");
  return call(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fault_of(path) == Fault::kFails) return -1;
  static const auto call = real<int (*)(const char*, mode_t)>("mkdir");
  return call(path, mode);
}

int remove(const char* path) noexcept {
  if (fault_of(path) == Fault::kFails) return -1;
  static const auto call = real<int (*)(const char*)>("remove");
  return call(path);
}

}  // extern "C"
