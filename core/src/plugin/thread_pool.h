// The threads of parallel_for. They start when first needed and stay between calls; a call allocates no memory and
// takes no lock. Each thread first takes the indices of its own part of them, the same in every call, so that it finds
// in its caches what it wrote in the call before.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tessera/calls.h"

namespace tessera::plugin {

class ThreadPool {
 public:
  // `threads` includes the caller's thread; at least 1.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs body(ctx, i) for every i in [0, n) and returns when all are done. The caller works as well, and never waits
  // for a thread that has not begun. While another call runs (from another thread or from inside a body), everything
  // runs on the caller's thread. [any-thread]
  void run(uint64_t n, void (*body)(void* ctx, uint64_t i), void* ctx);

  uint32_t threads() const { return threads_.load(std::memory_order_relaxed); }
  // It must not be called while run() is active.
  void resize(uint32_t threads);

 private:
  struct Job {
    uint32_t threads = 1;
    uint64_t grain = 1;
    void (*body)(void*, uint64_t) = nullptr;
    void* ctx = nullptr;
    Asked asked;  // the caller's call into a plugin, which the workers share
  };
  void start();
  void stop();
  void work(uint32_t thread);
  void take_indices(const Job& job, uint32_t thread);

  std::atomic<uint32_t> threads_;
  std::atomic<bool> busy_{false};
  std::vector<std::thread> workers_;

  // Bit 0: a job is open; bit 1: stop; bits 2-31: workers inside the job; bits 32-63: number of the job. A worker
  // enters by adding itself while the job is open. When no index is left, the caller closes the job and waits for the
  // workers inside.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) Job job_;
  // The indices of a job that are left to a thread, and after that to others.
  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};
    uint64_t end = 0;
  };
  std::vector<Part> parts_;
};

}  // namespace tessera::plugin
