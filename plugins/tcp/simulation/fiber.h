// A function with its own stack that can be left and entered again: a rank of a simulation. One thread runs many of
// them.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <utility>

#include "emulator/fiber.h"

namespace tessera::tcp::simulation {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body) : body_(std::move(body)) {}
  ~Fiber() = default;  // the body must have ended, or never been entered
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void enter();         // returns when the body leaves or ends
  static void leave();  // called by the body
  static bool is_inside();
  bool has_ended() const { return ended_; }

 private:
  static void run(void* self);
  void swap_exceptions();

  std::function<void()> body_;
  emulator::Fiber inner_{size_t{512} << 10, true}, outer_{0, true};  // the body's, and its caller's
  // The C++ runtime's record of exceptions in flight, which it keeps per thread.
  std::array<std::byte, 16> exceptions_{};
  bool ended_ = false;
};

}  // namespace tessera::tcp::simulation
