// A 1-D tensor that is kept between steps and only grows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/device.h"

namespace tessera {

class Buffer {
 public:
  explicit Buffer(DType dtype) : dtype_(dtype) {}
  // From now on memory of the stream's device, or of the host for copies to and from it (pinned). Before the first
  // ensure().
  void on_device(const DeviceStreamPtr& stream) { stream_ = stream, pinned_ = false; }
  void pinned(const DeviceStreamPtr& stream) { stream_ = stream, pinned_ = true; }

  // At least n elements; contents are lost when it grows.
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
