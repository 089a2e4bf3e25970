#include "plugin/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "plugin/host.h"

namespace tessera::plugin {
namespace {

template <class Body>
void run(ThreadPool& pool, uint64_t n, Body body) {
  pool.run(
      n, [](void* ctx, uint64_t i) { (*static_cast<Body*>(ctx))(i); }, &body);
}

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (uint32_t threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    for (uint64_t n : {0u, 1u, 2u, 7u, 100u, 1001u}) {
      std::vector<std::atomic<int>> seen(n);
      run(pool, n, [&](uint64_t i) { seen[i].fetch_add(1); });
      for (uint64_t i = 0; i < n; ++i) ASSERT_EQ(seen[i].load(), 1) << i << " of " << n << ", threads " << threads;
    }
  }
}

// A call reads what another call has written without atomics, so the pool itself must order them (ThreadSanitizer
// checks).
TEST(ThreadPool, CallsFollowEachOther) {
  ThreadPool pool(4);
  std::vector<uint64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    run(pool, values.size(), [&](uint64_t i) { values[i] = values[i] + i; });
  }
  for (uint64_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], 2000 * i);
}

TEST(ThreadPool, NestedCallsRunInPlace) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  run(pool, 10, [&](uint64_t) { run(pool, 10, [&](uint64_t) { count.fetch_add(1); }); });
  EXPECT_EQ(count.load(), 100);
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<uint64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&, c] {
      std::atomic<uint64_t> sum{0};
      for (int round = 0; round < 200; ++round) run(pool, 50, [&](uint64_t i) { sum.fetch_add(i); });
      sums[c] = sum;
    });
  }
  for (std::thread& t : callers) t.join();
  for (uint64_t sum : sums) EXPECT_EQ(sum, 200u * 1225u);
}

// Each of two threads begins with its own half of the indices, whoever comes first.
TEST(ThreadPool, ThreadsBeginWithTheirOwnPart) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> begun{0};
    std::atomic<uint64_t> first[2] = {8, 8};  // of the caller and of the worker
    run(pool, 8, [&](uint64_t i) {
      uint64_t none = 8;
      if (!first[std::this_thread::get_id() == caller ? 0 : 1].compare_exchange_strong(none, i)) return;
      ++begun;
      while (begun < 2) std::this_thread::yield();
    });
    EXPECT_EQ(first[0], 0u);
    EXPECT_EQ(first[1], 4u);
  }
}

TEST(ThreadPool, Resizes) {
  ThreadPool pool(0);
  EXPECT_EQ(pool.threads(), 1u);
  for (uint32_t threads : {4u, 2u, 1u, 3u}) {
    pool.resize(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::atomic<int> count{0};
    run(pool, 100, [&](uint64_t) { count.fetch_add(1); });
    EXPECT_EQ(count.load(), 100);
  }
}

double processor_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// A caller that waits for a worker, and a worker without work, leave the core to other programs.
TEST(ThreadPool, WaitingTakesNoProcessorTime) {
  constexpr auto kLong = std::chrono::milliseconds(200);
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> begun{0};
  const double before = processor_seconds();
  run(pool, 2, [&](uint64_t) {
    ++begun;
    if (std::this_thread::get_id() != caller) return std::this_thread::sleep_for(kLong);
    while (begun < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the worker has its share
  });
  std::this_thread::sleep_for(kLong);
  EXPECT_LT(processor_seconds() - before, 0.1);
}

TEST(Host, LendsMemory) {
  Host host(1, TSR_LOG_ERROR);
  const tsr_host* t = host.table();
  tsr_error err = TSR_ERROR_INIT;
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{5} << 20}) {
    char* memory = static_cast<char*>(t->alloc(t, {kDLCPU, 0}, bytes, nullptr, &err));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    if (bytes > 0) memory[0] = memory[bytes - 1] = 1;
    t->free(t, {kDLCPU, 0}, memory, bytes, nullptr);
  }
  t->free(t, {kDLCPU, 0}, nullptr, 0, nullptr);
  EXPECT_EQ(t->alloc(t, {kDLCUDA, 0}, 64, nullptr, &err), nullptr);
  EXPECT_EQ(err.code, TSR_UNIMPLEMENTED);
  EXPECT_STRNE(err.message, "");
}

TEST(Host, TableOutlivesTheHost) {
  const tsr_host* table = nullptr;
  {
    Host host(4, TSR_LOG_ERROR);
    table = host.table();
    EXPECT_EQ(table->num_threads(table), 4u);
  }
  EXPECT_EQ(table->num_threads(table), 1u);
  int count = 0;
  table->parallel_for(
      table, 5, [](void* ctx, uint64_t) { ++*static_cast<int*>(ctx); }, &count);
  EXPECT_EQ(count, 5);
}

TEST(Host, LogsUpToItsLevel) {
  Host host(1, TSR_LOG_WARNING);
  testing::internal::CaptureStderr();
  host.log(TSR_LOG_ERROR, "one");
  host.log(TSR_LOG_WARNING, "two");
  host.log(TSR_LOG_INFO, "three");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera: error: one\ntessera: warning: two\n");
}

}  // namespace
}  // namespace tessera::plugin
