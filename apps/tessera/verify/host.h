// The host that a verified plugin sees. Its memory is never zero and has guards around it, runs out when a check wants
// that, and its threads start anew for each call.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tessera/abi/host.h"

namespace tessera::cli::verify {

class TestHost {
 public:
  TestHost();
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;
  const tsr_host* raw() const { return &raw_; }

  uint32_t threads = 1;
  // Lets this many further allocations succeed; < 0: all.
  void allow(int64_t allocations) { left_ = allocations; }
  int64_t live_bytes() const { return live_; }
  // Describes the plugin's misuse of memory; "" if there was none.
  std::string misuse();

 private:
  struct Block {
    uint64_t bytes;
    DLDevice device;
  };
  static TestHost& of(const tsr_host* host) { return *static_cast<TestHost*>(host->self); }
  static void log(const tsr_host*, int32_t, const char*) {}
  static void* alloc(const tsr_host* host, DLDevice device, uint64_t bytes, tsr_stream stream, tsr_error* err);
  static void free(const tsr_host* host, DLDevice device, void* memory, uint64_t bytes, tsr_stream stream);
  static void parallel_for(const tsr_host* host, uint64_t n, void (*body)(void*, uint64_t), void* ctx);
  static uint32_t num_threads(const tsr_host* host) { return of(host).threads; }
  static const void* extension(const tsr_host*, const char*) { return nullptr; }
  void note(const std::string& misuse);

  tsr_host raw_;
  std::atomic<int64_t> left_{-1};
  std::atomic<int64_t> live_{0};
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::string misuse_;
};

}  // namespace tessera::cli::verify
