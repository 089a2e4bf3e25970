// A stream of the fake device: a thread that runs enqueued work in order, each time a little later.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "tessera/sdk/error.h"

namespace tessera::test {

class FakeStream {
 public:
  explicit FakeStream(std::chrono::microseconds delay) : delay_(delay), thread_([this] { run(); }) {}
  ~FakeStream() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  FakeStream(const FakeStream&) = delete;

  static FakeStream& of(void* stream) { return *static_cast<FakeStream*>(stream); }

  void enqueue(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++enqueued_;
    }
    changed_.notify_all();
  }
  // Throws what a task threw, and does so from then on: like a CUDA error, it is sticky.
  void synchronize() {
    std::unique_lock lock(mutex_);
    const uint64_t last = enqueued_;
    changed_.wait(lock, [&] { return done_ >= last; });
    if (failed_) throw sdk::Failure(code_, text_);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(delay_);
      tsr_error err = TSR_ERROR_INIT;
      const tsr_code code = sdk::guard(&err, task);
      lock.lock();
      if (code != TSR_OK && !failed_) {
        failed_ = true;
        code_ = code;
        text_ = err.message;
      }
      ++done_;
      changed_.notify_all();
    }
  }

  const std::chrono::microseconds delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t enqueued_ = 0, done_ = 0;
  bool closing_ = false, failed_ = false;
  tsr_code code_ = TSR_OK;
  std::string text_;
  std::thread thread_;
};

}  // namespace tessera::test
