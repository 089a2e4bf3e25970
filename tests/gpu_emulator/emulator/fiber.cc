#include "emulator/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace emulator {
namespace {

namespace context = boost::context::detail;

constexpr size_t kGuardBytes = 4096;

}  // namespace

Fiber::~Fiber() {
  if (!owns_stack_) return;
#if defined(EMULATOR_TSAN)
  if (thread_ != nullptr) __tsan_destroy_fiber(thread_);
#endif
  permit(stack_, stack_size_);
  ::munmap(stack_ - kGuardBytes, stack_size_ + kGuardBytes);
}

void Fiber::adopt_current_thread() {
  stack_ = nullptr;  // learned at the first switch away from it
  stack_size_ = 0;
#if defined(EMULATOR_TSAN)
  thread_ = __tsan_get_current_fiber();
#endif
}

void Fiber::allocate_stack() {
  void* memory = ::mmap(nullptr, stack_size_ + kGuardBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::perror("emulator: no memory for the stack of a fiber");
    std::abort();
  }
  stack_ = static_cast<char*>(memory) + kGuardBytes;
  owns_stack_ = true;
}

void Fiber::start(void (*body)(void*), void* argument) {
  if (stack_ == nullptr) allocate_stack();
  permit(stack_, stack_size_);  // clears frames that were never left
  body_ = body;
  argument_ = argument;
  fake_stack_ = nullptr;
#if defined(EMULATOR_TSAN)
  if (thread_ != nullptr) __tsan_destroy_fiber(thread_);
  thread_ = __tsan_create_fiber(0);
#endif
  context_ = context::make_fcontext(stack_ + stack_size_, stack_size_, &Fiber::enter);
}

void Fiber::switch_to(Fiber& next) {
  next_ = &next;
#if defined(EMULATOR_ASAN)
  __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.stack_size_);
#endif
#if defined(EMULATOR_TSAN)
  __tsan_switch_to_fiber(next.thread_, next.ordered_ ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
  arrived(context::jump_fcontext(next.context_, this));
}

void Fiber::enter(context::transfer_t from) {
  Fiber* self = static_cast<Fiber*>(from.data)->next_;
  self->arrived(from);
  self->body_(self->argument_);
  std::abort();
}

void Fiber::arrived(context::transfer_t from) {
  auto* before = static_cast<Fiber*>(from.data);
  before->context_ = from.fctx;
#if defined(EMULATOR_ASAN)
  const void* stack = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &stack, &size);
  if (before->stack_ == nullptr) {
    before->stack_ = const_cast<char*>(static_cast<const char*>(stack));
    before->stack_size_ = size;
  }
#endif
}

#if defined(EMULATOR_TSAN)
void release(const void* address) { __tsan_release(const_cast<void*>(address)); }
void acquire(const void* address) { __tsan_acquire(const_cast<void*>(address)); }
#else
void release(const void*) {}
void acquire(const void*) {}
#endif

#if defined(EMULATOR_ASAN)
void forbid(const void* address, size_t bytes) { __asan_poison_memory_region(address, bytes); }
void permit(const void* address, size_t bytes) { __asan_unpoison_memory_region(address, bytes); }
#else
void forbid(const void*, size_t) {}
void permit(const void*, size_t) {}
#endif

}  // namespace emulator
