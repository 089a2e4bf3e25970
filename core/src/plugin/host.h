// The core's half of tsr_host: log, CPU memory, threads.
#pragma once

#include <cstdint>
#include <memory>

#include "plugin/thread_pool.h"
#include "tessera/abi/host.h"

namespace tessera::plugin {

// A tsr_host that outlives every plugin: the table stays in memory until the process ends. When this object goes, its
// threads are joined and parallel_for of the table works on the caller's thread.
class Host {
 public:
  Host(uint32_t threads, int32_t log_level);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const tsr_host* table() const;
  ThreadPool& pool() { return pool_; }
  void log(int32_t level, const char* text) const;

 private:
  struct Permanent;
  Permanent* permanent_;  // never freed
  ThreadPool pool_;
};

}  // namespace tessera::plugin
