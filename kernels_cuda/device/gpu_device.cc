#include "device/gpu_device.h"

#include <algorithm>
#include <cstdio>

#include "dense/clipping.h"
#include "dense/loss.h"
#include "dense/parameters.h"
#include "device/row_moves.h"

namespace tessera::gpu {
namespace {

// The handles are the vendor's pointers.
Stream stream_of(tsr_stream stream) { return static_cast<Stream>(stream); }
Event event_of(tsr_event event) { return static_cast<Event>(event); }

}  // namespace

GpuDevice::Memory& GpuDevice::memory_of(int32_t index) {
  if (index < 0 || index >= count())
    sdk::fail(TSR_INVALID_ARGUMENT, "there is no " GPU_VENDOR " device ", index, ": there are ", count());
  return memory_[static_cast<size_t>(index)];
}

// Makes an existing device the thread's current one for the call.
template <class Call>
auto GpuDevice::on(int32_t index, const Call& call) {
  memory_of(index);
  const DeviceScope scope(index);
  return call();
}

void GpuDevice::info(int32_t index, tsr_device_info& out) {
  memory_of(index);
  const DeviceScope scope(index);
  const MemoryInfo memory = memory_info();
  out.total_bytes = memory.total;
  out.free_bytes = memory.free;
  std::snprintf(out.name, sizeof(out.name), GPU_VENDOR " device %d", index);
  out.memory_bandwidth = device_figures(index).bytes_per_second;
#if defined(TESSERA_GPU_EMULATOR)
  out.link_bandwidth = 100e9;  // a round number, because the emulator has no link
#endif
}

void* GpuDevice::alloc(int32_t index, uint64_t bytes, tsr_stream stream) {
  Memory& memory = memory_of(index);
  const DeviceScope scope(index);
  void* block = malloc_async(bytes, stream_of(stream));
  const uint64_t held = memory.held += bytes;
  uint64_t peak = memory.peak;
  while (held > peak && !memory.peak.compare_exchange_weak(peak, held)) {
  }
  ++memory.allocations;
  return block;
}

void GpuDevice::free(int32_t index, void* block, uint64_t bytes, tsr_stream stream) noexcept {
  if (block == nullptr) return;
  try {
    Memory& memory = memory_of(index);
    const DeviceScope scope(index);
    free_async(block, stream_of(stream));
    memory.held -= bytes;
  } catch (const sdk::Failure&) {  // the device has failed; the next wait for it reports that
  }
}

void GpuDevice::copy(int32_t index, void* to, const void* from, uint64_t bytes, int32_t, tsr_stream stream) {
  on(index, [&] { memcpy_async(to, from, bytes, stream_of(stream)); });
}

void GpuDevice::fill(int32_t index, void* memory, uint8_t value, uint64_t bytes, tsr_stream stream) {
  on(index, [&] { memset_async(memory, value, bytes, stream_of(stream)); });
}

tsr_stream GpuDevice::stream_create(int32_t index) {
  return on(index, [&] { return gpu::stream_create(); });
}

void GpuDevice::stream_destroy(int32_t, tsr_stream stream) noexcept { gpu::stream_destroy(stream_of(stream)); }

void GpuDevice::synchronize(int32_t index, tsr_stream stream) {
  ++memory_of(index).synchronizes;
  const DeviceScope scope(index);
  stream_synchronize(stream_of(stream));
}

tsr_event GpuDevice::event_create(int32_t index) {
  return on(index, [&] { return gpu::event_create(); });
}

void GpuDevice::event_destroy(int32_t, tsr_event event) noexcept { gpu::event_destroy(event_of(event)); }

void GpuDevice::event_record(int32_t index, tsr_event event, tsr_stream stream) {
  on(index, [&] { gpu::event_record(event_of(event), stream_of(stream)); });
}

void GpuDevice::event_wait(int32_t index, tsr_event event, tsr_stream stream) {
  on(index, [&] { stream_wait(stream_of(stream), event_of(event)); });
}

void GpuDevice::event_synchronize(int32_t index, tsr_event event) {
  memory_of(index);
  gpu::event_synchronize(event_of(event));
}

bool GpuDevice::event_query(int32_t index, tsr_event event) {
  return on(index, [&] { return gpu::event_done(event_of(event)); });
}

void GpuDevice::stats(int32_t index, tsr_device_stats& out) {
  const Memory& memory = memory_of(index);
  out.held_bytes = memory.held;
  out.peak_bytes = memory.peak;
  out.allocations = memory.allocations;
  out.synchronizes = memory.synchronizes;
}

void GpuDevice::combine_rows(const tsr_row_moves& moves, tsr_stream stream) {
  on(moves.device_index, [&] { gpu::combine_rows(moves, stream_of(stream)); });
}

void GpuDevice::split_rows(const tsr_row_moves& moves, tsr_stream stream) {
  on(moves.device_index, [&] { gpu::split_rows(moves, stream_of(stream)); });
}

void GpuDevice::update_parameters(const tsr_parameter_updates& updates, tsr_stream stream) {
  on(updates.device_index, [&] { gpu::update_parameters(updates, stream_of(stream)); });
}

void GpuDevice::binary_cross_entropy(const tsr_binary_cross_entropy& loss, tsr_stream stream) {
  on(loss.device_index, [&] { gpu::binary_cross_entropy(loss, stream_of(stream)); });
}

void GpuDevice::clip_gradients(const tsr_clipping& clipping, tsr_stream stream) {
  on(clipping.device_index, [&] { gpu::clip_gradients(clipping, stream_of(stream)); });
}

}  // namespace tessera::gpu
