#include "fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tessera::tcp::simulation {
namespace {

constexpr size_t kStackBytes = size_t{512} << 10;

Fiber*& inside() {
  thread_local Fiber* fiber = nullptr;
  return fiber;
}

// Free stacks, which are reused.
std::vector<void*>& free_stacks() {
  thread_local std::vector<void*> stacks;
  return stacks;
}

void* take_stack() {
  std::vector<void*>& stacks = free_stacks();
  if (stacks.empty()) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) std::abort();
    return stack;
  }
  void* const stack = stacks.back();
  stacks.pop_back();
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, kStackBytes);
#endif
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  getcontext(&here_);
  here_.uc_stack.ss_sp = stack_;
  here_.uc_stack.ss_size = kStackBytes;
  here_.uc_link = nullptr;
  makecontext(&here_, &Fiber::run, 0);
#if defined(__SANITIZE_THREAD__)
  its_stack_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(its_stack_);
#endif
  free_stacks().push_back(stack_);
}

bool Fiber::is_inside() { return inside() != nullptr; }

void Fiber::enter() {
  inside() = this;
  switch_to(true);
  inside() = nullptr;
}

void Fiber::leave() { inside()->switch_to(false); }

void Fiber::run() {
  Fiber& self = *inside();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self.outer_stack_, &self.outer_bytes_);
#endif
  self.body_();
  self.ended_ = true;
  self.switch_to(false);
}

void Fiber::switch_to(bool into) {
  static_assert(sizeof(Exceptions) == 16);
  Exceptions outer;
  void* const known = abi::__cxa_get_globals();
  std::memcpy(&outer, known, sizeof(outer));
  std::memcpy(known, &exceptions_, sizeof(outer));
  exceptions_ = outer;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  if (into) {
    __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
  } else {
    __sanitizer_start_switch_fiber(ended_ ? nullptr : &fake, outer_stack_, outer_bytes_);
  }
#endif
#if defined(__SANITIZE_THREAD__)
  if (into) thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(into ? its_stack_ : thread_, 0);
#endif
  if (into) {
    swapcontext(&there_, &here_);
  } else {
    swapcontext(&here_, &there_);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, into ? nullptr : &outer_stack_, into ? nullptr : &outer_bytes_);
#endif
}

}  // namespace tessera::tcp::simulation
