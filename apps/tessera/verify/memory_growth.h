// Measures whether memory of this process grows while the same calls are repeated.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cli::verify {

class MemoryGrowth {
 public:
  // The calls so far were the warm-up, in which a plugin may take what it keeps.
  void begin();
  // Throws Broken if `count` calls of this name since begin() made the process larger by more than a
  // MiB of the C library's memory, or 64 MiB of any.
  void require_little(const std::string& calls, int64_t count) const;

 private:
  int64_t allocated_ = 0, resident_ = 0;
};

}  // namespace tessera::cli::verify
