// The core's implementation of tsr_host: log, memory of the CPU and of attached devices, threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "plugin/thread_pool.h"
#include "tessera/abi/host.h"
#include "tessera/runtime.h"

namespace tessera::plugin {

// Owns a tsr_host, whose table stays valid until the process ends, because plugins may keep it. The destructor joins
// the threads. Afterwards the table's parallel_for works on the caller's thread.
class Host {
 public:
  using LogSink = std::function<void(int32_t level, const char* text)>;

  // `log` null: lines go to standard error.
  Host(uint32_t threads, int32_t log_level, LogSink log = nullptr);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const tsr_host* table() const;
  ThreadPool& pool() { return pool_; }
  void log(int32_t level, const char* text) const;

  // From now on the component (abi/draft/device.h) serves alloc and free for its device type. It lives as long as the
  // table. Returns false if another one already serves that type. [serial]
  bool attach_device(ComponentPtr part);
  ComponentPtr attached_device(const std::string& id) const;  // null: not attached. [serial]

 private:
  struct Permanent;
  Permanent* permanent_;  // never freed
  ThreadPool pool_;
};

}  // namespace tessera::plugin
