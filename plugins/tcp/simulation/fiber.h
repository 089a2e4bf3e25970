// A function with a stack of its own, which can be left and entered again: a rank of a simulation, of which one thread
// runs many.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace tessera::tcp::simulation {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();  // which has ended, or was never entered
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void enter();         // returns when the body leaves or ends
  static void leave();  // by the body
  static bool is_inside();
  bool has_ended() const { return ended_; }

 private:
  static void run();
  void switch_to(bool inside);

  // The C++ runtime's record of exceptions that are under way, which it keeps by thread.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };

  std::function<void()> body_;
  ucontext_t here_{}, there_{};  // in the body, and where it was entered
  void* stack_ = nullptr;
  Exceptions exceptions_;
  bool ended_ = false;
  // State of sanitizers, which have to be told.
  [[maybe_unused]] void* its_stack_ = nullptr;
  [[maybe_unused]] void* thread_ = nullptr;
  [[maybe_unused]] const void* outer_stack_ = nullptr;
  [[maybe_unused]] size_t outer_bytes_ = 0;
};

}  // namespace tessera::tcp::simulation
