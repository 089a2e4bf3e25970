// The memory that programs on this process's host, or in its container, may use.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Sizes are bytes. All processes of a container share them, including other ranks.
struct SystemMemory {
  // The machine's memory, or a lower limit of a control group (cgroup v1 or v2) of this process or above it. A process
  // that uses more is killed.
  int64_t limit = 0;
  // The free memory. Files that the kernel caches and may drop count as free; swap space does not.
  int64_t available = 0;
  std::string bound_by;  // the tightest limit: "this machine", or "control group DIRECTORY"
};

// Throws kUnavailable if the system does not tell. `root` is the directory with its files, for tests; "" is "/".
SystemMemory system_memory(const std::string& root = "");

}  // namespace tessera
