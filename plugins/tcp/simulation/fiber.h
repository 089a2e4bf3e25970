// A function with its own stack that can be left and entered again: a rank of a simulation. One thread runs many of
// them.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace tessera::tcp::simulation {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();  // it must have ended, or never been entered
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void enter();         // returns when the body leaves or ends
  static void leave();  // called by the body
  static bool is_inside();
  bool has_ended() const { return ended_; }

 private:
  static void run();
  void switch_to(bool inside);

  // The C++ runtime's record of exceptions in flight, which it keeps per thread.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };

  std::function<void()> body_;
  ucontext_t here_{}, there_{};  // position in the body, and where it was entered
  void* stack_ = nullptr;
  Exceptions exceptions_;
  bool ended_ = false;
  // State for sanitizers, which must be told of stack switches.
  [[maybe_unused]] void* its_stack_ = nullptr;
  [[maybe_unused]] void* thread_ = nullptr;
  [[maybe_unused]] const void* outer_stack_ = nullptr;
  [[maybe_unused]] size_t outer_bytes_ = 0;
};

}  // namespace tessera::tcp::simulation
