// How much memory the programs of this process's host, or of its container, may use.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// Bytes. All processes of a container share them, other ranks included.
struct SystemMemory {
  // The machine's memory, or less where a control group (cgroup v1 or v2) of this process, or one around it, is
  // limited: who takes more than that is killed.
  int64_t limit = 0;
  // The memory that can still be had. Files that the kernel keeps in memory and may drop count as free; swap space does
  // not.
  int64_t available = 0;
  std::string bound_by;  // where least is available: "this machine", or "control group DIRECTORY"
};

// kUnavailable where the system does not tell. `root`: where its files are looked for, for tests; "" is "/".
SystemMemory system_memory(const std::string& root = "");

}  // namespace tessera
