// tessera/calls.h - calls functions of plugins, and records for each thread which of them run right now. A report of a
// crash or of a long wait can then name the component. A record costs a few stores in the thread's own memory and no
// lock, because steps also use it.
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

// The component and the function that a thread is calling. Both pointers live as long as the process.
struct Asked {
  const tsr_component* part = nullptr;  // null: a plugin's file is being opened
  const char* what = nullptr;           // name of the function, "propose"; null: no call
  bool waits = false;                   // the call waits for other ranks, with its own deadline
};

// A call. Its thread writes it, and any thread may read it. `number` is 0 while the other members are written.
struct Call {
  static constexpr size_t kAbout = 160;
  std::atomic<uint64_t> number{0};  // unique among all calls
  std::atomic<const tsr_component*> part{nullptr};
  std::atomic<const char*> what{nullptr};
  std::atomic<bool> waits{false};
  std::array<std::atomic<char>, kAbout> about{};
};

// The calls of a thread, the outermost first. A thread keeps its place in the list until it ends. The places are
// static, because a reader may come late and a thread that predicts allocates no memory.
struct ThreadCalls {
  static constexpr uint32_t kDeepest = 4;  // nested calls that are recorded
  std::atomic<bool> taken{false};
  std::atomic<uint32_t> depth{0};
  uint64_t last = 0;  // the number given last
  std::array<Call, kDeepest> calls;

  // This thread's calls; null before its first call.
  static thread_local constinit ThreadCalls* here;
  static ThreadCalls* take_place() noexcept;  // null: too many threads are in plugins
};

// Records a call of a plugin as long as it lives. Calls of device plugins are not recorded.
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
  // `about` is the table or file. It is copied and, if too long, cut.
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

// A call of a component, and the words before its error.
struct CallOf {
  const Component& part;
  const char* what = nullptr;
  std::string_view about = {};
  std::string_view error = {};
};

// Calls a plugin's function, which takes its error last, and throws that error.
template <class Function, class... Args>
void call(const CallOf& of, Function function, Args... args) {
  AbiError error;
  const CallScope scope(of.part, of.what, of.about);
  error.check(function(args..., error.out()), of.error);
}

// Returns this thread's call, for the threads that work for it.
Asked asked_here() noexcept;

// The innermost call of a thread.
struct RunningCall {
  uint64_t number = 0;
  bool waits = false;
  std::string text;  // `acme.hot (tessera.sharder/1), propose, "item"`
};
std::vector<RunningCall> running_calls();  // of all threads

// Writes the text of this thread's innermost call, with a NUL, and returns its length; 0 if there is no call.
// Async-signal-safe.
size_t describe_call_here(char* out, size_t size) noexcept;

}  // namespace tessera::plugin
