#include "verify/memory_growth.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "verify/check.h"

namespace tessera::cli::verify {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t allocated_now() {
  const struct mallinfo2 now = mallinfo2();
  return static_cast<int64_t>(now.uordblks + now.hblkhd);
}

int64_t resident_now() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

void MemoryGrowth::begin() {
  allocated_ = allocated_now();
  resident_ = resident_now();
}

// Allocated memory of the C library is exact. What a plugin maps itself shows only in the resident memory, which also
// grows by fragments.
void MemoryGrowth::require_little(const std::string& calls, int64_t count) const {
  const int64_t allocated = allocated_now() - allocated_, resident = resident_now() - resident_;
  require(allocated <= kMiB && resident <= 64 * kMiB, count, " ", calls, " alike took ",
          std::max(allocated, resident) / 1024, " KiB of memory that they keep");
}

}  // namespace tessera::cli::verify
