// tessera/awaitable.h - a result that is on its way. wait() finishes it, once; on destruction an unfinished one is
// finished and dropped, so that no rank leaves a collective half-way.
#pragma once

#include <functional>
#include <optional>
#include <utility>

namespace tessera {

template <class T>
class Awaitable {
 public:
  explicit Awaitable(std::function<T()> finish) : finish_(std::move(finish)) {}
  Awaitable(Awaitable&& other) noexcept
      : finish_(std::exchange(other.finish_, nullptr)), value_(std::move(other.value_)) {}
  Awaitable& operator=(Awaitable&& other) noexcept {
    drop();
    finish_ = std::exchange(other.finish_, nullptr);
    value_ = std::move(other.value_);
    return *this;
  }
  ~Awaitable() { drop(); }

  // The value; the first call does the work. Throws what the work throws.
  T& wait() {
    if (finish_) {
      auto finish = std::exchange(finish_, nullptr);
      value_.emplace(finish());
    }
    return value_.value();
  }

 private:
  void drop() noexcept {
    if (!finish_) return;
    try {
      wait();
    } catch (...) {  // nobody asked for the result; the group remembers its error
    }
  }

  std::function<T()> finish_;
  std::optional<T> value_;
};

}  // namespace tessera
