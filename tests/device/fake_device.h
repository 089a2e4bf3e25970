// A device for tests (in fact two) that exposes mistakes. The host cannot touch its memory; memory is poisoned until
// its allocation is reached in the stream and after its free, with guards around every block; streams lag.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "fake_stream.h"
#include "tessera/sdk/draft/device_ops.h"

namespace tessera::test {

// Device addresses are invalid on the host: one bit differs, so that any use there is a fault.
constexpr uintptr_t kFakeBit = uintptr_t{1} << 62;
inline bool on_fake_device(const void* p) { return (reinterpret_cast<uintptr_t>(p) & kFakeBit) != 0; }
template <class T>
T* to_host_address(T* p) {
  if (p == nullptr) return p;
  if (!on_fake_device(p)) sdk::fail(TSR_INVALID_ARGUMENT, "host memory was given where the device works");
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) & ~kFakeBit);
}
template <class T>
T* to_device_address(T* p) {
  return p == nullptr ? p : reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) | kFakeBit);
}

// Options: delay_us (20), memory_mib of each device (256).
class FakeDevice : public sdk::Device {
 public:
  static constexpr int32_t kDeviceType = kDLExtDev;
  explicit FakeDevice(sdk::Options& options);

  int32_t count() override { return kCount; }
  void info(int32_t index, tsr_device_info& out) override;
  void* alloc(int32_t index, uint64_t bytes, tsr_stream stream) override;
  void free(int32_t index, void* memory, uint64_t bytes, tsr_stream stream) noexcept override;
  void* host_alloc(uint64_t bytes) override;
  void host_free(void* memory, uint64_t bytes) noexcept override;
  void copy(int32_t index, void* to, const void* from, uint64_t bytes, int32_t direction, tsr_stream stream) override;
  void fill(int32_t index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream) override;
  tsr_stream stream_create(int32_t index) override;
  void stream_destroy(int32_t index, tsr_stream stream) noexcept override;
  void synchronize(int32_t index, tsr_stream stream) override;
  tsr_event event_create(int32_t index) override;
  void event_destroy(int32_t index, tsr_event event) noexcept override;
  void event_record(int32_t index, tsr_event event, tsr_stream stream) override;
  void event_wait(int32_t index, tsr_event event, tsr_stream stream) override;
  void event_synchronize(int32_t index, tsr_event event) override;
  bool event_query(int32_t index, tsr_event event) override;
  void stats(int32_t index, tsr_device_stats& out) override;

 protected:
  FakeStream& stream_of(int32_t index, tsr_stream stream);

 private:
  static constexpr int32_t kCount = 2;
  struct Memory {
    std::atomic<uint64_t> held{0}, peak{0}, allocations{0}, synchronizes{0};
  };
  Memory& memory_of(int32_t index);

  std::chrono::microseconds delay_;
  uint64_t capacity_;
  Memory memory_[kCount];
  std::mutex mutex_;
  std::unique_ptr<FakeStream> default_[kCount];  // created when first used
};

// The same, with the draft's functions that move rows, and with bandwidths.
class FakeDeviceWithRows : public FakeDevice, public sdk::DeviceOps {
 public:
  using FakeDevice::FakeDevice;
  const void* extension(std::string_view id) const { return device_ops<FakeDeviceWithRows>(id); }
  void info(int32_t index, tsr_device_info& out) override;
  void combine_rows(const tsr_row_moves& moves, tsr_stream stream) override;
  void split_rows(const tsr_row_moves& moves, tsr_stream stream) override;
};

// The same, with the arithmetic of training: SGD, the loss, clipping.
class FakeDeviceThatTrains : public FakeDeviceWithRows {
 public:
  using FakeDeviceWithRows::FakeDeviceWithRows;
  const void* extension(std::string_view id) const { return device_ops<FakeDeviceThatTrains>(id); }
  void update_parameters(const tsr_parameter_updates& updates, tsr_stream stream) override;
  void binary_cross_entropy(const tsr_binary_cross_entropy& loss, tsr_stream stream) override;
  void clip_gradients(const tsr_clipping& clipping, tsr_stream stream) override;
};

}  // namespace tessera::test
