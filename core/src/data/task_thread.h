// One thread that runs tasks one after the other.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::data {

// The thread starts with the first task and lasts as long as the object. A new thread per task would make library
// allocators get fresh memory each time.
class TaskThread {
 public:
  TaskThread() = default;
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  // Waits for the task.
  ~TaskThread() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // Call it after the previous result was taken. The future throws what `task` throws.
  template <class Task>
  auto run(Task task) {
    using Result = decltype(task());
    const auto packaged = std::make_shared<std::packaged_task<Result()>>(std::move(task));
    std::future<Result> result = packaged->get_future();
    {
      const std::lock_guard lock(mutex_);
      task_ = [packaged] { (*packaged)(); };
    }
    if (thread_.joinable())
      wake_.notify_one();
    else
      thread_ = std::thread([this] { work(); });
    return result;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return ends_ || task_; });
      if (!task_) return;
      const std::function<void()> task = std::exchange(task_, nullptr);
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::function<void()> task_;  // not started yet
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tessera::data
