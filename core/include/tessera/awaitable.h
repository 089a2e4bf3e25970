// tessera/awaitable.h - a result that is still being computed. wait() finishes it, once. The destructor finishes and
// drops an unfinished one, so that no rank leaves a collective half-way.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace tessera {

template <class T>
class Awaitable {
 public:
  // `finish` is called once, without arguments, and returns the value. It is stored inside the object, so nothing is
  // allocated.
  template <class Finish>
  requires(std::is_invocable_r_v<T, Finish&> &&
           !std::is_same_v<std::decay_t<Finish>, Awaitable>) explicit Awaitable(Finish finish)
      : calls_(&kCallsOf<Finish>) {
    static_assert(sizeof(Finish) <= kRoom && alignof(Finish) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Finish>);
    ::new (static_cast<void*>(room_)) Finish(std::move(finish));
  }
  Awaitable(Awaitable&& other) noexcept { take(other); }
  Awaitable& operator=(Awaitable&& other) noexcept {
    if (this == &other) return *this;
    drop();
    value_.reset();
    take(other);
    return *this;
  }
  ~Awaitable() { drop(); }

  // Returns the value; the first call does the work. Throws what the work throws.
  T& wait() {
    if (calls_) std::exchange(calls_, nullptr)->finish(room_, value_);
    return value_.value();
  }

 private:
  static constexpr size_t kRoom = 64;

  struct Calls {
    void (*finish)(void* room, std::optional<T>& value);  // also destroys the object in `room`
    void (*move)(void* from, void* to) noexcept;
  };
  template <class Finish>
  static constexpr Calls kCallsOf = {[](void* room, std::optional<T>& value) {
                                       struct Owner {  // destroys it even if the call throws
                                         Finish* finish;
                                         ~Owner() { std::destroy_at(finish); }
                                       } const owner{static_cast<Finish*>(room)};
                                       value.emplace((*owner.finish)());
                                     },
                                     [](void* from, void* to) noexcept {
                                       auto* finish = static_cast<Finish*>(from);
                                       ::new (to) Finish(std::move(*finish));
                                       std::destroy_at(finish);
                                     }};

  void take(Awaitable& other) noexcept {
    calls_ = std::exchange(other.calls_, nullptr);
    if (calls_) calls_->move(other.room_, room_);
    value_ = std::move(other.value_);
  }

  void drop() noexcept {
    if (!calls_) return;
    try {
      wait();
    } catch (...) {  // nobody asked for the result; the group remembers its error
    }
  }

  const Calls* calls_ = nullptr;  // null: nothing is left to do
  alignas(std::max_align_t) std::byte room_[kRoom];
  std::optional<T> value_;
};

}  // namespace tessera
