// emulator/fiber.h - a stack of its own to run on, known to AddressSanitizer and ThreadSanitizer. For the emulator
// alone.
//
// To ThreadSanitizer each fiber is a thread, and switching orders nothing: only release() and acquire() do. So two GPU
// threads that touch the same memory without a barrier between them are a data race to it, as they are on a GPU. The
// emulator's own files are compiled without instrumentation, so that only the kernels' accesses count.
#pragma once

#include <cstddef>

#include <boost/context/detail/fcontext.hpp>

namespace emulator {

class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Stands for the stack that is in use: the one that the others come back to.
  void adopt_current_thread();
  // On the first switch to it, `body(argument)` starts; it never returns. Also ends what ran here before.
  void start(void (*body)(void*), void* argument);
  bool started() const { return stack_ != nullptr; }

  // From the fiber that is running, `this`, to another.
  void switch_to(Fiber& next);

 private:
  static void enter(boost::context::detail::transfer_t from);
  void arrived(boost::context::detail::transfer_t from);
  void allocate_stack();

  boost::context::detail::fcontext_t context_ = nullptr;
  Fiber* next_ = nullptr;  // where it switches to
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* stack_ = nullptr;  // lowest address; not owned by an adopted thread
  size_t stack_size_ = 0;
  bool owns_stack_ = false;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* thread_ = nullptr;      // ThreadSanitizer's
};

// What a GPU thread did before release(p) happened before what a GPU thread does after an acquire(p) that follows.
void release(const void* address);
void acquire(const void* address);

// Only for AddressSanitizer: whether the bytes may be touched.
void forbid(const void* address, size_t bytes);
void permit(const void* address, size_t bytes);

}  // namespace emulator
