// The threads behind parallel_for: kept between calls, started when first needed, no allocation and no lock per call.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "plugin/calls.h"

namespace tessera::plugin {

class ThreadPool {
 public:
  // `threads` counts the caller's; at least 1.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs body(ctx, i) for every i in [0, n); returns when all are done. The caller works too and never waits for a
  // thread that has not begun. While another call is running (from another thread, or from inside a body) it runs
  // everything on the caller's thread. [any-thread]
  void run(uint64_t n, void (*body)(void* ctx, uint64_t i), void* ctx);

  uint32_t threads() const { return threads_.load(std::memory_order_relaxed); }
  // Not while run() is active.
  void resize(uint32_t threads);

 private:
  struct Job {
    uint64_t n = 0;
    uint64_t grain = 1;
    void (*body)(void*, uint64_t) = nullptr;
    void* ctx = nullptr;
    Asked asked;  // of the caller: workers are in the same call
  };
  void start();
  void stop();
  void work();
  void take_indices(const Job& job);

  std::atomic<uint32_t> threads_;
  std::atomic<bool> busy_{false};
  std::vector<std::thread> workers_;

  // Bit 0: a job is open; bit 1: stop; bits 2-31: workers inside the job; bits 32-63: number of the job. A worker
  // enters by adding itself while the job is open; the caller closes the job when no index is left and waits for those
  // inside.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint64_t> next_{0};
  alignas(64) Job job_;
};

}  // namespace tessera::plugin
