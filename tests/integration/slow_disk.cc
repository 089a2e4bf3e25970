// To be preloaded: a disk that stalls once, for longer than a test lets ranks wait for each other. Of the first two
// files that are synced, the second: the first one only tries the place.
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
