// A library to be preloaded: a disk that stalls once, for longer than ranks may wait for each other in a test. It
// stalls at the second file that is synced, because the first one only tests the place.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>

extern "C" int fsync(int fd) {
  static std::atomic<int> calls = 0;
  if (calls.fetch_add(1) == 1) sleep(TESSERA_STALL_S);
  using Call = int (*)(int);
  static const auto real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "fsync"));
  return real(fd);
}
