// A thread that writes waiting rows to the files while steps run.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "tier.h"

namespace extras {

class Writer {
 public:
  explicit Writer(const std::vector<std::unique_ptr<Tier>>& tiers) : tiers_(tiers) {}
  ~Writer() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Wakes the thread if there is work, and throws its last failure. Only one thread may call it at a time.
  void look() {
    {
      const std::lock_guard lock(mutex_);
      if (failure_ != nullptr) std::rethrow_exception(failure_);
      if (asked_) return;
    }
    bool waits = false;
    for (const auto& tier : tiers_) waits |= tier->waits();
    if (!waits) return;
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {  // the system cannot start a thread
      return write();
    }
    const std::lock_guard lock(mutex_);
    asked_ = true;
    wake_.notify_one();
  }

 private:
  void write() const {
    for (const auto& tier : tiers_) tier->write_back();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || asked_; });
      if (stop_) return;
      asked_ = false;
      lock.unlock();
      try {
        write();
      } catch (...) {
        lock.lock();
        failure_ = std::current_exception();
        return;
      }
      lock.lock();
    }
  }

  const std::vector<std::unique_ptr<Tier>>& tiers_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, asked_ = false;
  std::exception_ptr failure_;
};

}  // namespace extras
