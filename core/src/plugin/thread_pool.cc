#include "plugin/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "tessera/error.h"

namespace tessera::plugin {
namespace {

constexpr uint64_t kOpen = 1;
constexpr uint64_t kStop = 2;
constexpr uint64_t kOneInside = 4;
constexpr uint64_t kInside = 0xFFFFFFFCu;
constexpr uint64_t kOneJob = uint64_t{1} << 32;
constexpr int kSpins = 256;      // a few microseconds, which is shorter than sleeping and waking
constexpr uint64_t kPieces = 8;  // for each thread, so that uneven bodies end together

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns the state once it differs from `seen`. It spins for a moment, then sleeps.
uint64_t wait_for_change(const std::atomic<uint64_t>& state, uint64_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    const uint64_t now = state.load(std::memory_order_acquire);
    if (now != seen) return now;
    relax();
  }
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
  try {
    while (workers_.size() + 1 < threads()) workers_.emplace_back([this] { work(); });
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
  job_ = {n, std::max<uint64_t>(1, n / (kPieces * threads())), body, ctx, asked_here()};
  next_.store(0, std::memory_order_relaxed);
  state_.fetch_add(kOneJob | kOpen, std::memory_order_release);
  state_.notify_all();
  take_indices(job_);
  uint64_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while ((state & kInside) != 0) state = wait_for_change(state_, state);
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::take_indices(const Job& job) {
  for (;;) {
    const uint64_t begin = next_.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.n) return;
    const uint64_t end = std::min(job.n, begin + job.grain);
    for (uint64_t i = begin; i < end; ++i) job.body(job.ctx, i);
  }
}

void ThreadPool::work() {
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
      take_indices(job_);
    }
    state = state_.fetch_sub(kOneInside, std::memory_order_acq_rel) - kOneInside;
    if ((state & kInside) == 0) state_.notify_all();
  }
}

}  // namespace tessera::plugin
