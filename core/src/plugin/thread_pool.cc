#include "plugin/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "tessera/error.h"

namespace tessera::plugin {
namespace {

constexpr uint64_t kOpen = 1;
constexpr uint64_t kStop = 2;
constexpr uint64_t kOneInside = 4;
constexpr uint64_t kInside = 0xFFFFFFFCu;
constexpr uint64_t kOneJob = uint64_t{1} << 32;
// Sleeping and waking takes tens of microseconds, most of all in virtual machines. Layers follow each other faster.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr uint64_t kPieces = 8;  // for each thread, so that uneven bodies end together

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns the state once it differs from `seen`. It spins for a moment, in which other threads may have the core, then
// sleeps.
uint64_t wait_for_change(const std::atomic<uint64_t>& state, uint64_t seen) {
  constexpr int kLooks = 64;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      const uint64_t now = state.load(std::memory_order_acquire);
      if (now != seen) return now;
      relax();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  state.wait(seen, std::memory_order_acquire);
  return state.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) : threads_(std::max(threads, 1u)) {}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::resize(uint32_t threads) {
  TESSERA_CHECK(!busy_.load(), "the number of threads changes while parallel_for runs");
  stop();
  threads_ = std::max(threads, 1u);
}

void ThreadPool::start() {
  workers_.reserve(threads() - 1);
  parts_ = std::vector<Part>(threads());
  try {
    while (workers_.size() + 1 < threads())
      workers_.emplace_back([this, thread = static_cast<uint32_t>(workers_.size() + 1)] { work(thread); });
  } catch (const std::system_error&) {
    // The system grants no more threads, so the existing ones do the work.
    threads_ = static_cast<uint32_t>(workers_.size() + 1);
  }
}

void ThreadPool::stop() {
  state_.fetch_or(kStop, std::memory_order_release);
  state_.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
  state_.fetch_and(~kStop, std::memory_order_relaxed);
}

void ThreadPool::run(uint64_t n, void (*body)(void*, uint64_t), void* ctx) {
  if (n <= 1 || threads() == 1 || busy_.exchange(true, std::memory_order_acquire)) {
    for (uint64_t i = 0; i < n; ++i) body(ctx, i);
    return;
  }
  if (workers_.empty()) start();
  job_ = {threads(), std::max<uint64_t>(1, n / (kPieces * threads())), body, ctx, asked_here()};
  for (uint64_t p = 0; p < threads(); ++p) {
    parts_[p].next.store(n * p / threads(), std::memory_order_relaxed);
    parts_[p].end = n * (p + 1) / threads();
  }
  state_.fetch_add(kOneJob | kOpen, std::memory_order_release);
  state_.notify_all();
  take_indices(job_, 0);
  uint64_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while ((state & kInside) != 0) state = wait_for_change(state_, state);
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::take_indices(const Job& job, uint32_t thread) {
  for (uint32_t k = 0; k < job.threads; ++k) {
    Part& part = parts_[(thread + k) % job.threads];
    for (uint64_t begin; (begin = part.next.fetch_add(job.grain, std::memory_order_relaxed)) < part.end;) {
      const uint64_t end = std::min(part.end, begin + job.grain);
      for (uint64_t i = begin; i < end; ++i) job.body(job.ctx, i);
    }
  }
}

void ThreadPool::work(uint32_t thread) {
  uint64_t done = ~uint64_t{0};  // number of this worker's last job
  uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & kStop) == 0) {
    if ((state & kOpen) == 0 || state / kOneJob == done) {
      state = wait_for_change(state_, state);
      continue;
    }
    if (!state_.compare_exchange_weak(state, state + kOneInside, std::memory_order_acq_rel)) continue;
    done = state / kOneJob;
    {
      const CallScope call(job_.asked);
      take_indices(job_, thread);
    }
    state = state_.fetch_sub(kOneInside, std::memory_order_acq_rel) - kOneInside;
    if ((state & kInside) == 0) state_.notify_all();
  }
}

}  // namespace tessera::plugin
