#include "tessera/calls.h"

#include <pthread.h>

#include <algorithm>

#include "tessera/error.h"

namespace tessera::plugin {
namespace {

constexpr size_t kMostThreads = 512;  // threads whose calls are recorded at one time

std::array<ThreadCalls, kMostThreads>& places() {
  static constinit std::array<ThreadCalls, kMostThreads> all;
  return all;
}

void leave_place(void* place) {
  ThreadCalls::here = nullptr;
  static_cast<ThreadCalls*>(place)->taken.store(false, std::memory_order_release);
}

const Call* innermost(const ThreadCalls* thread) {
  const uint32_t depth = thread == nullptr ? 0 : thread->depth.load(std::memory_order_acquire);
  return depth == 0 ? nullptr : &thread->calls[std::min(depth, ThreadCalls::kDeepest) - 1];
}

// A text in the caller's memory, cut if it is too long.
class Text {
 public:
  Text(char* out, size_t size) : at_(out), end_(out + size - 1), begin_(out) {}
  void add(char c) {
    if (at_ < end_) *at_++ = c;
  }
  void add(const char* text) {
    while (*text != '\0') add(*text++);
  }
  size_t finish() {
    *at_ = '\0';
    return static_cast<size_t>(at_ - begin_);
  }

 private:
  char* at_;
  char* end_;
  char* begin_;
};

size_t describe(const Call& call, char* out, size_t size) {
  const char* what = call.what.load(std::memory_order_acquire);
  if (what == nullptr || size == 0) return 0;
  Text text(out, size);
  if (const tsr_component* part = call.part.load(std::memory_order_acquire)) {
    text.add(part->id);
    text.add(" (");
    text.add(part->kind);
    text.add("), ");
  }
  text.add(what);
  const auto about = [&](size_t i) { return i < Call::kAbout ? call.about[i].load(std::memory_order_acquire) : '\0'; };
  if (about(0) != '\0') {
    text.add(", \"");
    for (size_t i = 0; about(i) != '\0'; ++i) text.add(about(i));
    text.add('"');
  }
  return text.finish();
}

}  // namespace

thread_local constinit ThreadCalls* ThreadCalls::here = nullptr;

ThreadCalls* ThreadCalls::take_place() noexcept {
  static const pthread_key_t at_end_of_thread = [] {  // a thread_local with a destructor would allocate memory
    pthread_key_t key{};
    TESSERA_CHECK(pthread_key_create(&key, leave_place) == 0);
    return key;
  }();
  for (size_t i = 0; i < kMostThreads; ++i) {
    ThreadCalls& place = places()[i];
    if (place.taken.load(std::memory_order_relaxed) || place.taken.exchange(true, std::memory_order_acquire)) continue;
    if (place.last == 0) place.last = static_cast<uint64_t>(i + 1) << 40;
    pthread_setspecific(at_end_of_thread, &place);
    return here = &place;
  }
  return nullptr;
}

void CallScope::tell(std::string_view about) noexcept {
  const uint32_t depth = calls_ == nullptr ? 0 : calls_->depth.load(std::memory_order_relaxed);
  if (depth == 0 || depth > ThreadCalls::kDeepest) return;
  Call& call = calls_->calls[depth - 1];
  const size_t length = std::min(about.size(), size_t{Call::kAbout - 1});
  call.number.store(0, std::memory_order_release);
  for (size_t i = 0; i < length; ++i) call.about[i].store(about[i], std::memory_order_release);
  call.about[length].store('\0', std::memory_order_release);
  call.number.store(calls_->last, std::memory_order_release);
}

Asked asked_here() noexcept {
  const Call* call = innermost(ThreadCalls::here);
  if (call == nullptr) return {};
  return {call->part.load(std::memory_order_relaxed), call->what.load(std::memory_order_relaxed),
          call->waits.load(std::memory_order_relaxed)};
}

std::vector<RunningCall> running_calls() {
  std::vector<RunningCall> out;
  for (const ThreadCalls& thread : places()) {
    const Call* call = innermost(&thread);
    if (call == nullptr) continue;
    const uint64_t number = call->number.load(std::memory_order_acquire);
    std::array<char, 2 * Call::kAbout> text{};
    const size_t length = describe(*call, text.data(), text.size());
    const bool waits = call->waits.load(std::memory_order_acquire);
    if (number == 0 || length == 0) continue;
    // the call has ended
    if (call->number.load(std::memory_order_acquire) != number || innermost(&thread) != call) continue;
    out.push_back({number, waits, std::string(text.data(), length)});
  }
  return out;
}

size_t describe_call_here(char* out, size_t size) noexcept {
  const Call* call = innermost(ThreadCalls::here);
  return call == nullptr ? 0 : describe(*call, out, size);
}

}  // namespace tessera::plugin
