#include "fiber.h"

#include <cxxabi.h>

#include <cstring>

namespace tessera::tcp::simulation {
namespace {

Fiber*& inside() {
  thread_local Fiber* fiber = nullptr;
  return fiber;
}

}  // namespace

bool Fiber::is_inside() { return inside() != nullptr; }

void Fiber::enter() {
  inside() = this;
  outer_.adopt_current_thread();
  if (!inner_.started()) inner_.start(&Fiber::run, this);
  swap_exceptions();
  outer_.switch_to(inner_);
  inside() = nullptr;
}

void Fiber::leave() {
  Fiber& self = *inside();
  self.swap_exceptions();
  self.inner_.switch_to(self.outer_);
}

void Fiber::run(void* fiber) {
  auto& self = *static_cast<Fiber*>(fiber);
  self.body_();
  self.ended_ = true;
  leave();
}

void Fiber::swap_exceptions() {
  void* const known = abi::__cxa_get_globals();
  std::array<std::byte, 16> outer{};
  std::memcpy(outer.data(), known, outer.size());
  std::memcpy(known, exceptions_.data(), outer.size());
  exceptions_ = outer;
}

}  // namespace tessera::tcp::simulation
