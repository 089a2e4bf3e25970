#include "verify/threads.h"

#include <unistd.h>

#include <filesystem>
#include <iterator>

namespace tessera::cli::verify {

int threads_now() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

int threads_once_at_most(int expected) {
  for (int i = 0; i < 1000 && threads_now() > expected; ++i) usleep(1000);
  return threads_now();
}

}  // namespace tessera::cli::verify
