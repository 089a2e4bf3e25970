// Wall-clock time since an object was made.
#pragma once

#include <chrono>

namespace tessera::cli {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  double us() const { return 1e6 * seconds(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tessera::cli
