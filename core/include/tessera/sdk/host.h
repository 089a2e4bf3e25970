// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/host.h - the core's services as a small value type. Copies are cheap. It lives as long as the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "tessera/abi/host.h"
#include "tessera/sdk/error.h"

namespace tessera::sdk {
inline namespace v1 {

class Host {
 public:
  explicit Host(const tsr_host* raw) : raw_(raw) {}
  const tsr_host* raw() const { return raw_; }

  // Logs one line. Level: TSR_LOG_*.
  void log(int32_t level, const std::string& text) const noexcept { raw_->log(raw_, level, text.c_str()); }
  uint32_t num_threads() const { return raw_->num_threads(raw_); }

  // Calls body(i) for i in [0, n) on up to num_threads() threads. A nested call runs on the calling thread. The first
  // exception of a body is thrown here, after all indices have run. Allocates nothing.
  template <class Body>
  void parallel_for(uint64_t n, Body&& body) const {
    struct Shared {
      Body& body;
      std::atomic_flag failed;  // clear
      std::exception_ptr first;
    } shared{body, {}, nullptr};
    raw_->parallel_for(
        raw_, n,
        [](void* ctx, uint64_t i) {
          Shared& s = *static_cast<Shared*>(ctx);
          try {
            s.body(i);
          } catch (...) {
            if (!s.failed.test_and_set()) s.first = std::current_exception();
          }
        },
        &shared);
    if (shared.first) std::rethrow_exception(shared.first);
  }

 private:
  const tsr_host* raw_;
};

// Memory from the host, returned by the destructor. Aligned to 64 bytes, not initialised.
class Buffer {
 public:
  Buffer() = default;
  // Throws Failure(TSR_RESOURCE_EXHAUSTED) with the host's message.
  Buffer(Host host, uint64_t bytes, DLDevice device = {kDLCPU, 0}, tsr_stream stream = nullptr)
      : host_(host.raw()), bytes_(bytes), device_(device), stream_(stream) {
    if (device.device_type != kDLCPU && stream == nullptr)
      fail(TSR_INVALID_ARGUMENT, "memory of a device is asked for without a stream: NULL stands for host memory");
    Call call;
    data_ = host_->alloc(host_, device, bytes, stream, call.err());
    if (data_ == nullptr && bytes > 0) {
      call.check(call.err()->code == TSR_OK ? TSR_RESOURCE_EXHAUSTED : call.err()->code);
    }
  }
  ~Buffer() {
    if (data_ != nullptr) host_->free(host_, device_, data_, bytes_, stream_);
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }

  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
  }

  const tsr_host* host_ = nullptr;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  DLDevice device_{kDLCPU, 0};
  tsr_stream stream_ = nullptr;
};

}  // namespace v1
}  // namespace tessera::sdk
