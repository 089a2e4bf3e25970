// The runtime's threads for the core's own stages. Each body writes separate memory, so results have the same bits for
// any number of threads.
#pragma once

#include <cstdint>

#include "tessera/sdk/host.h"

namespace tessera {

class Workers {
 public:
  Workers() = default;  // only the caller's thread
  explicit Workers(const tsr_host* host) : host_(host) {}

  // True if work on this number of bytes justifies waking a thread, which takes as long as copying some 100 KiB.
  bool worth(int64_t bytes) const {
    return host_ != nullptr && bytes >= kWorthBytes && sdk::Host(host_).num_threads() > 1;
  }
  // Calls body(i) for i in [0, n), which together work on `bytes`. Allocates no memory.
  template <class Body>
  void run(int64_t n, int64_t bytes, const Body& body) const {
    if (worth(bytes))
      sdk::Host(host_).parallel_for(static_cast<uint64_t>(n), [&](uint64_t i) { body(static_cast<int64_t>(i)); });
    else
      for (int64_t i = 0; i < n; ++i) body(i);
  }

 private:
  static constexpr int64_t kWorthBytes = 512 << 10;
  const tsr_host* host_ = nullptr;
};

}  // namespace tessera
