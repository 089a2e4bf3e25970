// A 1-D tensor that is kept between steps and only grows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/device.h"

namespace tessera {

class Buffer {
 public:
  explicit Buffer(DType dtype) : dtype_(dtype) {}
  // These set where the memory is from now on: on the stream's device, or in host memory that is pinned for copies to
  // and from it. Call one of them before the first ensure().
  void on_device(const DeviceStreamPtr& stream) { stream_ = stream, pinned_ = false; }
  void pinned(const DeviceStreamPtr& stream) { stream_ = stream, pinned_ = true; }

  // Returns at least n elements. The contents are lost when the buffer grows.
  const Tensor& ensure(int64_t n) {
    if (!tensor_.defined() || tensor_.numel() < n) grow(std::max<int64_t>(n + n / 4, 64));
    return tensor_;
  }
  const Tensor& tensor() const { return tensor_; }
  template <class T>
  T* data() const {
    return tensor_.data<T>();
  }

 private:
  void grow(int64_t n) {
    tensor_ = !stream_  ? Tensor::empty({n}, dtype_)
              : pinned_ ? stream_->host_1d(n, dtype_)
                        : stream_->empty({n}, dtype_);
  }

  DType dtype_;
  bool pinned_ = false;
  DeviceStreamPtr stream_;
  Tensor tensor_;
};

}  // namespace tessera
