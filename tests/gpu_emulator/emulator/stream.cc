#include "emulator/stream.h"

#include <utility>

namespace emulator {

Launcher::~Launcher() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

std::string Launcher::run(const Launch& launch) {
  const uint64_t total = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const size_t workers = static_cast<size_t>(std::min<uint64_t>(total, static_cast<uint64_t>(config().workers)));
  while (blocks_.size() < workers) blocks_.push_back(std::make_unique<Block>());
  while (helpers_.size() + 1 < workers) {  // a new helper takes no part in earlier launches
    helpers_.emplace_back([this, i = helpers_.size(), round = round_] { help(i, round); });
  }
  {
    std::lock_guard lock(mutex_);
    launch_ = &launch;
    next_ = 0;
    failed_ = false;
    error_.clear();
    busy_ = helpers_.size();
    ++round_;
  }
  wake_.notify_all();
  take_blocks(*blocks_[0]);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
  return error_;
}

void Launcher::help(size_t helper, uint64_t seen) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
    }
    take_blocks(*blocks_[helper + 1]);
    std::lock_guard lock(mutex_);
    if (--busy_ == 0) finished_.notify_one();
  }
}

void Launcher::take_blocks(Block& block) {
  const dim3 grid = launch_->grid;
  const uint64_t total = uint64_t{grid.x} * grid.y * grid.z;
  while (!failed_) {
    const uint64_t i = next_.fetch_add(1);
    if (i >= total) return;
    const dim3 index(static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                     static_cast<unsigned>(i / grid.x / grid.y));
    std::string error = block.run(*launch_, index, config().warp_size, config().seed);
    if (error.empty()) continue;
    std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) error_ = std::move(error);
  }
}

void Mark::reach() {
  std::lock_guard lock(mutex_);
  time_ = std::chrono::steady_clock::now();
  reached_ = true;
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

bool Mark::reached() {
  std::lock_guard lock(mutex_);
  return reached_;
}

std::chrono::steady_clock::time_point Mark::time() {
  std::lock_guard lock(mutex_);
  return time_;
}

std::shared_ptr<Mark> Event::record(bool captured) {
  std::lock_guard lock(mutex_);
  last_ = std::make_shared<Mark>(captured);
  return last_;
}

std::shared_ptr<Mark> Event::last() {
  std::lock_guard lock(mutex_);
  return last_;
}

Stream::Stream(Kind kind) : kind_(kind) {
  if (kind == Kind::kQueue) thread_ = std::thread([this] { serve(); });
}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Stream::add(Task work, bool always) {
  if (kind_ == Kind::kImmediate) {
    std::lock_guard lock(running_);
    if (always || !stuck()) run_one(work);
    return;
  }
  std::lock_guard lock(mutex_);
  if (captured_ != nullptr) {
    captured_->tasks.push_back(std::move(work));
    return;
  }
  queue_.push_back({std::move(work), std::chrono::steady_clock::now() + config().delay, always});
  changed_.notify_all();
}

bool Stream::begin_capture() {
  std::lock_guard lock(mutex_);
  if (captured_ != nullptr || kind_ == Kind::kImmediate) return false;
  captured_ = std::make_unique<Graph>();
  spoiled_ = false;
  return true;
}

bool Stream::capturing() {
  std::lock_guard lock(mutex_);
  return captured_ != nullptr;
}

void Stream::spoil_capture() {
  std::lock_guard lock(mutex_);
  spoiled_ = true;
}

std::unique_ptr<Graph> Stream::end_capture() {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Graph> graph = std::move(captured_);
  return spoiled_ ? nullptr : std::move(graph);
}

void Stream::wait_until_idle() {
  if (kind_ == Kind::kImmediate) {
    std::lock_guard lock(running_);
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Stream::run_one(const Task& work) {
  begin_work();
  work(launcher_);
  end_work();
}

void Stream::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::this_thread::sleep_until(work.not_before);
    if (work.always || !stuck()) run_one(work.run);
    work.run = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace emulator
