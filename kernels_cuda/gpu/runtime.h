// gpu/runtime.h - the host's side of a device: memory, streams, events. Included by gpu/gpu.h, which chose the vendor.
//
// Everything works on the calling thread's current device (DeviceScope); functions that take a stream only enqueue.
// Failures throw sdk::Failure with one sentence: the request, and the vendor's message. Handles are the vendor's own
// (cudaStream_t, hipStream_t, ...), so a tsr_stream casts to Stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/sdk/error.h"

namespace tessera::gpu {

using Error = GPU_API(Error_t);
using Stream = GPU_API(Stream_t);
using Event = GPU_API(Event_t);

inline constexpr Error kSuccess = GPU_CONSTANT(Success);

// Returns, for example, "out of memory (cudaErrorMemoryAllocation)".
inline std::string error_text(Error error) {
  return std::string(GPU_API(GetErrorString)(error)) + " (" + GPU_API(GetErrorName)(error) + ")";
}

// Throws unless `error` is success. `parts` together describe the request.
template <class... Parts>
void check(Error error, const Parts&... parts) {
  if (error == kSuccess) return;
  (void)GPU_API(GetLastError)();  // clears the error, so that the next launch is not blamed for it
  const bool memory = error == GPU_CONSTANT(ErrorMemoryAllocation);
  const bool none = error == GPU_CONSTANT(ErrorNoDevice) || error == GPU_CONSTANT(ErrorInsufficientDriver);
  sdk::fail(memory ? TSR_RESOURCE_EXHAUSTED : none ? TSR_UNAVAILABLE : TSR_INTERNAL, parts..., ": ", error_text(error));
}

// Throws if the launch just made on this thread was refused, or if earlier work has failed.
inline void launch_error(const char* kernel) {
  const Error error = GPU_API(GetLastError)();
  if (error != kSuccess) check(error, "cannot launch ", kernel);
}

// The number of devices of this vendor. Without devices or a driver it is 0, and *why has the vendor's reason. It does
// not throw.
inline int device_count(std::string* why = nullptr) {
  int n = 0;
  const Error error = GPU_API(GetDeviceCount)(&n);
  if (error == kSuccess && n > 0) return n;
  (void)GPU_API(GetLastError)();
  if (why != nullptr) *why = error == kSuccess ? "the driver lists none" : error_text(error);
  return 0;
}

// For the probe of a component: throws TSR_UNAVAILABLE "no CUDA device: ..." if there is none.
inline void require_device() {
  std::string why;
  if (device_count(&why) == 0) sdk::fail(TSR_UNAVAILABLE, "no " GPU_VENDOR " device: ", why);
}

inline int current_device() {
  int device = 0;
  check(GPU_API(GetDevice)(&device), "cannot ask for the current device");
  return device;
}

// Makes `device` the calling thread's device, and restores the previous one in its destructor.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : before_(current_device()), changed_(device != before_) {
    if (changed_) check(GPU_API(SetDevice)(device), "cannot use device ", device);
  }
  ~DeviceScope() {
    if (changed_) (void)GPU_API(SetDevice)(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_;
  bool changed_;
};

// Device memory, aligned to 256 bytes, usable by work that is enqueued on `stream` after this call.
inline void* malloc_async(size_t bytes, Stream stream) {
  void* memory = nullptr;
  check(GPU_API(MallocAsync)(&memory, bytes == 0 ? 1 : bytes, stream), "cannot allocate ", bytes,
        " bytes of device memory");
  return memory;
}
// The memory lives until earlier work on `stream` is done. NULL is allowed.
inline void free_async(void* memory, Stream stream) noexcept {
  if (memory != nullptr) (void)GPU_API(FreeAsync)(memory, stream);
}

// Allocates host memory that the device can copy directly. Do not call it within a step, because it may synchronise.
inline void* host_alloc(size_t bytes) {
  void* memory = nullptr;
  const size_t some = bytes == 0 ? 1 : bytes;
#if defined(TESSERA_GPU_HIP)
  const Error error = hipHostMalloc(&memory, some, hipHostMallocDefault);
#else
  const Error error = GPU_API(HostAlloc)(&memory, some, 0);
#endif
  check(error, "cannot allocate ", bytes, " bytes of pinned host memory");
  return memory;
}
inline void host_free(void* memory) noexcept {
#if defined(TESSERA_GPU_HIP)
  (void)hipHostFree(memory);
#else
  (void)GPU_API(FreeHost)(memory);
#endif
}

// Copies between host and device in either direction, or within the device. If host memory is not from host_alloc, the
// call waits: until the copy is done if that memory is the target, until it has been read if it is the source.
inline void memcpy_async(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(GPU_API(MemcpyAsync)(to, from, bytes, GPU_CONSTANT(MemcpyDefault), stream), "cannot copy ", bytes, " bytes");
}
inline void memset_async(void* memory, int byte, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  check(GPU_API(MemsetAsync)(memory, byte, bytes, stream), "cannot fill ", bytes, " bytes");
}

// Free and total bytes of the current device.
struct MemoryInfo {
  size_t free;
  size_t total;
};
inline MemoryInfo memory_info() {
  MemoryInfo info{};
  check(GPU_API(MemGetInfo)(&info.free, &info.total), "cannot ask for the device's memory");
  return info;
}

// Figures of a device's memory; both are peaks.
struct DeviceFigures {
  double bytes_per_second;
  double cache_bytes;  // of the last-level cache
};
inline DeviceFigures device_figures([[maybe_unused]] int device) {
#if defined(TESSERA_GPU_EMULATOR)
  return {100e9, 4 << 20};  // round numbers, because the emulator has no figures
#else
#if defined(TESSERA_GPU_HIP)
  constexpr auto kClock = hipDeviceAttributeMemoryClockRate, kWidth = hipDeviceAttributeMemoryBusWidth,
                 kCache = hipDeviceAttributeL2CacheSize;
#else
  constexpr auto kClock = cudaDevAttrMemoryClockRate, kWidth = cudaDevAttrGlobalMemoryBusWidth,
                 kCache = cudaDevAttrL2CacheSize;
#endif
  const auto ask = [device](auto what) {
    int value = 0;
    check(GPU_API(DeviceGetAttribute)(&value, what, device), "cannot ask device ", device, " for its memory");
    return static_cast<double>(value);
  };
  // The clock is in kHz, with two transfers per cycle; the width is in bits. Virtual devices do not always report them.
  const double told = 2 * ask(kClock) * 1e3 * ask(kWidth) / 8;
  return {told > 0 ? told : 1e12, ask(kCache)};
#endif
}

// Creates a stream that does not wait for the default stream, nor the default stream for it.
inline Stream stream_create() {
  Stream stream = nullptr;
  check(GPU_API(StreamCreateWithFlags)(&stream, GPU_CONSTANT(StreamNonBlocking)), "cannot create a stream");
  return stream;
}
inline void stream_destroy(Stream stream) noexcept { (void)GPU_API(StreamDestroy)(stream); }
// Waits for all enqueued work, and throws its errors.
inline void stream_synchronize(Stream stream) {
  check(GPU_API(StreamSynchronize)(stream), "the work of a stream failed");
}
// Work that is enqueued on `stream` after this call starts after the event's last record.
inline void stream_wait(Stream stream, Event event) {
  check(GPU_API(StreamWaitEvent)(stream, event, 0), "cannot let a stream wait for an event");
}

enum class Timing { kOff, kOn };
inline Event event_create(Timing timing = Timing::kOff) {
  Event event = nullptr;
  const unsigned flags = timing == Timing::kOn ? GPU_CONSTANT(EventDefault) : GPU_CONSTANT(EventDisableTiming);
  check(GPU_API(EventCreateWithFlags)(&event, flags), "cannot create an event");
  return event;
}
inline void event_destroy(Event event) noexcept { (void)GPU_API(EventDestroy)(event); }
inline void event_record(Event event, Stream stream) {
  check(GPU_API(EventRecord)(event, stream), "cannot record an event");
}
inline void event_synchronize(Event event) { check(GPU_API(EventSynchronize)(event), "the work of a stream failed"); }
// True if the work before the event's last record is done.
inline bool event_done(Event event) {
  const Error error = GPU_API(EventQuery)(event);
  if (error == GPU_CONSTANT(ErrorNotReady)) return false;
  check(error, "the work of a stream failed");
  return true;
}
// The milliseconds between the records of two events with timing. Both must be done.
inline float event_elapsed_ms(Event from, Event to) {
  float ms = 0;
  check(GPU_API(EventElapsedTime)(&ms, from, to), "cannot take the time between two events");
  return ms;
}

// Capture: work enqueued on the stream between begin and end is recorded instead of run, with its current addresses and
// sizes, and runs at each graph_launch. During a capture there may be no allocations, no waiting, no copies from or to
// host memory that is not from host_alloc, and no events of other streams; otherwise capture_end throws.
using Graph = GPU_API(GraphExec_t);
inline void capture_begin(Stream stream) {
  check(GPU_API(StreamBeginCapture)(stream, GPU_CONSTANT(StreamCaptureModeThreadLocal)), "cannot capture a stream");
}
inline Graph capture_end(Stream stream) {
  GPU_API(Graph_t) recorded = nullptr;
  check(GPU_API(StreamEndCapture)(stream, &recorded), "the capture of a stream failed");
  Graph graph = nullptr;
#if defined(TESSERA_GPU_HIP)
  const Error error = hipGraphInstantiate(&graph, recorded, nullptr, nullptr, 0);
#else
  const Error error = GPU_API(GraphInstantiate)(&graph, recorded, 0);
#endif
  (void)GPU_API(GraphDestroy)(recorded);
  check(error, "cannot make a graph of a capture");
  return graph;
}
inline void graph_launch(Graph graph, Stream stream) {
  check(GPU_API(GraphLaunch)(graph, stream), "cannot launch a graph");
}
inline void graph_destroy(Graph graph) noexcept { (void)GPU_API(GraphExecDestroy)(graph); }

}  // namespace tessera::gpu
