// The vendor's devices as a component: everything that the core needs from them except kernels.
#pragma once

#include <atomic>
#include <vector>

#include "gpu/gpu.h"
#include "tessera/sdk/draft/device_ops.h"

namespace tessera::gpu {

class GpuDevice : public sdk::Device, public sdk::DeviceOps {
 public:
#if defined(TESSERA_GPU_CUDA)
  static constexpr int32_t kDeviceType = kDLCUDA;
#elif defined(TESSERA_GPU_HIP)
  static constexpr int32_t kDeviceType = kDLROCM;
#else
  static constexpr int32_t kDeviceType = kDLExtDev;
#endif

  GpuDevice() : memory_(static_cast<size_t>(device_count())) {}
  static void probe(sdk::Host) { require_device(); }
  const void* extension(std::string_view id) const { return device_ops<GpuDevice>(id); }

  int32_t count() override { return static_cast<int32_t>(memory_.size()); }
  void info(int32_t index, tsr_device_info& out) override;
  void* alloc(int32_t index, uint64_t bytes, tsr_stream stream) override;
  void free(int32_t index, void* memory, uint64_t bytes, tsr_stream stream) noexcept override;
  void* host_alloc(uint64_t bytes) override { return gpu::host_alloc(bytes); }
  void host_free(void* memory, uint64_t) noexcept override { gpu::host_free(memory); }
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
  void combine_rows(const tsr_row_moves& moves, tsr_stream stream) override;
  void split_rows(const tsr_row_moves& moves, tsr_stream stream) override;
  void sum_lengths(const DLTensor& lengths, const DLTensor& offsets, tsr_stream stream) override;
  void check_bounds(const tsr_jagged& input, const DLTensor& rows, const DLTensor* repaired, tsr_bounds_report* report,
                    tsr_stream stream) override;
  void permute(const tsr_jagged& input, const DLTensor& order, const tsr_jagged_output& output,
               tsr_stream stream) override;
  void bucketize(const tsr_jagged& input, int32_t blocks, const DLTensor& block_rows, const tsr_jagged_output& output,
                 tsr_stream stream) override;
  void update_parameters(const tsr_parameter_updates& updates, tsr_stream stream) override;
  void binary_cross_entropy(const tsr_binary_cross_entropy& loss, tsr_stream stream) override;
  void clip_gradients(const tsr_clipping& clipping, tsr_stream stream) override;

 private:
  struct Memory {
    std::atomic<uint64_t> held{0}, peak{0}, allocations{0}, synchronizes{0};
  };
  Memory& memory_of(int32_t index);
  template <class Call>
  auto on(int32_t index, const Call& call);

  std::vector<Memory> memory_;  // per device
};

}  // namespace tessera::gpu
