// emulator/fiber.h - a separate stack to run on, known to AddressSanitizer and ThreadSanitizer. Internal to the
// emulator and to the simulation of the TCP transport.
//
// ThreadSanitizer sees each fiber as a thread. Switching orders nothing unless the fiber switched to is `ordered`; only
// release() and acquire() do. Two GPU threads that touch the same memory without a barrier between them are therefore a
// data race, as on a GPU. The emulator's own files are compiled without instrumentation, so that only the kernels'
// accesses count.
#pragma once

#include <cstddef>

#include <boost/context/detail/fcontext.hpp>

namespace emulator {

class Fiber {
 public:
  explicit Fiber(size_t stack_bytes = size_t{128} << 10, bool ordered = false)
      : stack_size_(stack_bytes), ordered_(ordered) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Represents the current stack, to which the others return.
  void adopt_current_thread();
  // The first switch to it starts `body(argument)`, which never returns. Also ends whatever ran here before.
  void start(void (*body)(void*), void* argument);
  bool started() const { return stack_ != nullptr; }

  // Switches from the running fiber, `this`, to another.
  void switch_to(Fiber& next);

 private:
  static void enter(boost::context::detail::transfer_t from);
  void arrived(boost::context::detail::transfer_t from);
  void allocate_stack();

  boost::context::detail::fcontext_t context_ = nullptr;
  Fiber* next_ = nullptr;  // the fiber to switch to
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* stack_ = nullptr;  // lowest address; not owned by an adopted thread
  size_t stack_size_;
  [[maybe_unused]] const bool ordered_;
  bool owns_stack_ = false;
  void* fake_stack_ = nullptr;               // AddressSanitizer's
  [[maybe_unused]] void* thread_ = nullptr;  // ThreadSanitizer's
};

// Actions of a GPU thread before release(p) happen before actions of a GPU thread after a later acquire(p).
void release(const void* address);
void acquire(const void* address);

// For AddressSanitizer only: say whether bytes may be touched.
void forbid(const void* address, size_t bytes);
void permit(const void* address, size_t bytes);

}  // namespace emulator
