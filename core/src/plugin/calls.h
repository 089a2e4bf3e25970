// The calls into plugins that run right now, thread by thread, so that a report of a crash or of a long wait can name
// the part. A few stores in memory of the thread and no lock: steps use it, too.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/runtime.h"

namespace tessera::plugin {

// Both pointers live as long as the process.
struct Asked {
  const tsr_component* part = nullptr;  // null: a plugin's file that is being opened
  const char* what = nullptr;           // "propose"; null: nothing is asked
  bool waits = false;                   // for other ranks, with a deadline of its own
};

// A call, written by its thread and read by any. `number` is 0 while the rest is being written.
struct Call {
  static constexpr size_t kAbout = 160;
  std::atomic<uint64_t> number{0};  // no other call's
  std::atomic<const tsr_component*> part{nullptr};
  std::atomic<const char*> what{nullptr};
  std::atomic<bool> waits{false};
  std::array<std::atomic<char>, kAbout> about{};
};

// The calls of a thread, the outermost first. It keeps its place until it ends. All memory is there from the start: a
// reader may be late, and a thread that predicts asks for none.
struct ThreadCalls {
  static constexpr uint32_t kDeepest = 4;  // calls inside calls that are told apart
  std::atomic<bool> taken{false};
  std::atomic<uint32_t> depth{0};
  uint64_t last = 0;  // number given
  std::array<Call, kDeepest> calls;

  // This thread's; null before its first call.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit ThreadCalls* here;
  static ThreadCalls* take_place() noexcept;  // null: too many threads are in plugins
};

// Stands around a call of a plugin; those of device plugins have none.
class CallScope {
 public:
  explicit CallScope(Asked asked) noexcept
      : calls_(ThreadCalls::here != nullptr ? ThreadCalls::here : ThreadCalls::take_place()) {
    if (calls_ == nullptr) return;
    constexpr auto kInOrder = std::memory_order_release;
    const uint32_t depth = calls_->depth.load(std::memory_order_relaxed);
    if (depth < ThreadCalls::kDeepest) {
      Call& call = calls_->calls[depth];
      call.number.store(0, kInOrder);
      call.part.store(asked.part, kInOrder);
      call.what.store(asked.what, kInOrder);
      call.waits.store(asked.waits, kInOrder);
      call.about[0].store('\0', kInOrder);
      call.number.store(++calls_->last, kInOrder);
    }
    calls_->depth.store(depth + 1, kInOrder);
  }
  // `about`: the table or file; copied, as far as there is room.
  CallScope(Asked asked, std::string_view about) noexcept : CallScope(asked) { tell(about); }
  CallScope(const Component& part, const char* what) noexcept : CallScope(Asked{part.raw()->component, what}) {}
  CallScope(const Component& part, const char* what, std::string_view about) noexcept
      : CallScope(Asked{part.raw()->component, what}, about) {}
  ~CallScope() {
    if (calls_ == nullptr) return;
    calls_->depth.store(calls_->depth.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  void tell(std::string_view about) noexcept;
  ThreadCalls* calls_;
};

// This thread's call, for threads that work for it.
Asked asked_here() noexcept;

// A thread's innermost call.
struct RunningCall {
  uint64_t number = 0;
  bool waits = false;
  std::string text;  // `acme.hot (tessera.sharder/1), propose, "item"`
};
std::vector<RunningCall> running_calls();  // of all threads

// The text of this thread's innermost call, ended by NUL; its length, 0 where there is none. Async-signal-safe.
size_t describe_call_here(char* out, size_t size) noexcept;

}  // namespace tessera::plugin
