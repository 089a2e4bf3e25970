// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/fd.h - an owned file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace tessera::sdk {
inline namespace v1 {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace v1
}  // namespace tessera::sdk
