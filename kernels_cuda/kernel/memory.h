// Device memory from the host's stream-ordered service.
#pragma once

#include <cstdint>
#include <utility>

#include "gpu/gpu.h"
#include "tessera/sdk/host.h"

namespace tessera::gpu {

// Memory that only grows: after the largest batch, it allocates nothing more. It is freed and allocated in the order of
// the stream, without waiting. Before its owner destroys it, the owner must wait for all work that uses it, because the
// stream may no longer exist.
class DeviceScratch {
 public:
  DeviceScratch(sdk::Host host, DLDevice device) : host_(host.raw()), device_(device) {}
  ~DeviceScratch() { give_back(nullptr); }
  DeviceScratch(DeviceScratch&& other) noexcept
      : host_(other.host_),
        device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceScratch& operator=(DeviceScratch&&) = delete;

  // Returns at least `bytes` bytes, aligned to 64. Previous content is lost if it has to grow. Work enqueued on
  // `stream` may still use the old memory.
  void* take(uint64_t bytes, Stream stream) {
    if (bytes <= bytes_) return data_;
    give_back(stream);
    return allocate(bytes + bytes / 4 + 4096, stream);
  }
  // Does the same for a single use: it allocates no more than `bytes`.
  void* take_exactly(uint64_t bytes, Stream stream) { return bytes <= bytes_ ? data_ : allocate(bytes, stream); }

  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  void* allocate(uint64_t bytes, Stream stream) {
    sdk::Call call;
    void* data = host_->alloc(host_, device_, bytes, stream, call.err());
    if (data == nullptr) call.check(call.err()->code == TSR_OK ? TSR_RESOURCE_EXHAUSTED : call.err()->code);
    data_ = data;
    bytes_ = bytes;
    return data_;
  }
  void give_back(Stream stream) noexcept {
    if (data_ != nullptr) host_->free(host_, device_, data_, bytes_, stream);
    data_ = nullptr;
    bytes_ = 0;
  }

  const tsr_host* host_;
  DLDevice device_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tessera::gpu
