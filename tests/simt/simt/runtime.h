// simt/runtime.h - the host's calls of the emulated GPU, shaped like CUDA's and HIP's so that gpu/runtime.h needs one
// spelling for all three, and what a test may set and ask beyond them (namespace simt).
//
// What is emulated, and how mistakes show:
//   * A stream is a thread with a queue: a call returns at once, and its work starts Config::delay later, after all
//     that was enqueued before it. Streams are ordered by events and synchronisation alone. The NULL stream is the
//     exception: there a call is done when it returns.
//   * Memory of simtMallocAsync cannot be touched before its allocation is reached in its stream (a segmentation
//     fault), begins filled with 0xA5, and cannot be touched after its free was reached. Bytes behind its end are
//     watched: AddressSanitizer reports the write, without it the free fails.
//   * The host cannot touch device memory while no work is under way (Config::guard): a segmentation fault, as on a
//     machine with a GPU.
//   * Host memory that is not simtHostAlloc's is copied from, or to, before the call returns; pinned memory is not.
//   * A kernel that cannot go on (threads wait at a barrier that others never reach), or that wrote behind an
//     allocation: all later work is skipped and every later call fails with simtErrorLaunchFailure, as in CUDA;
//     simtGetErrorString then gives the sentence. simt::reset() begins anew.
//   * A stream that is being captured records its work for a graph. What would make the graph wrong, or wait, ends the
//     capture: allocating, freeing, copies from or to pageable memory, synchronising, events of other streams.
//   * A launch with a grid of 0, more than 1024 threads in a block or more than 48 KiB of shared memory is refused.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace simt {
class Stream;
class Event;
class Graph;
}  // namespace simt

using simtStream_t = simt::Stream*;
using simtEvent_t = simt::Event*;
using simtGraph_t = simt::Graph*;
using simtGraphExec_t = simt::Graph*;

enum simtError_t {
  simtSuccess = 0,
  simtErrorInvalidValue = 1,
  simtErrorMemoryAllocation = 2,
  simtErrorInvalidConfiguration = 9,
  simtErrorInsufficientDriver = 35,
  simtErrorNoDevice = 100,
  simtErrorInvalidDevice = 101,
  simtErrorNotReady = 600,
  simtErrorLaunchFailure = 719,
  simtErrorStreamCaptureUnsupported = 900,
  simtErrorStreamCaptureInvalidated = 901,
  simtErrorStreamCaptureIsolation = 905,
};
enum simtStreamCaptureMode { simtStreamCaptureModeThreadLocal = 1 };
enum simtMemcpyKind { simtMemcpyDefault = 4 };
enum : unsigned { simtStreamNonBlocking = 1, simtEventDefault = 0, simtEventDisableTiming = 2 };

const char* simtGetErrorName(simtError_t error);
const char* simtGetErrorString(simtError_t error);  // of this thread's last one, until its next call
simtError_t simtGetLastError();                     // and forgets it, unless it sticks

simtError_t simtGetDeviceCount(int* count);
simtError_t simtGetDevice(int* device);
simtError_t simtSetDevice(int device);
simtError_t simtMemGetInfo(size_t* free_bytes, size_t* total_bytes);

simtError_t simtMallocAsync(void** memory, size_t bytes, simtStream_t stream);
simtError_t simtFreeAsync(void* memory, simtStream_t stream);
simtError_t simtHostAlloc(void** memory, size_t bytes, unsigned flags);
simtError_t simtFreeHost(void* memory);
simtError_t simtMemcpyAsync(void* to, const void* from, size_t bytes, simtMemcpyKind kind, simtStream_t stream);
simtError_t simtMemsetAsync(void* memory, int byte, size_t bytes, simtStream_t stream);

simtError_t simtStreamCreateWithFlags(simtStream_t* stream, unsigned flags);
simtError_t simtStreamDestroy(simtStream_t stream);
simtError_t simtStreamSynchronize(simtStream_t stream);
simtError_t simtStreamWaitEvent(simtStream_t stream, simtEvent_t event, unsigned flags);

simtError_t simtEventCreateWithFlags(simtEvent_t* event, unsigned flags);
simtError_t simtEventDestroy(simtEvent_t event);
simtError_t simtEventRecord(simtEvent_t event, simtStream_t stream);
simtError_t simtEventSynchronize(simtEvent_t event);
simtError_t simtEventQuery(simtEvent_t event);
simtError_t simtEventElapsedTime(float* milliseconds, simtEvent_t from, simtEvent_t to);

simtError_t simtStreamBeginCapture(simtStream_t stream, simtStreamCaptureMode mode);
simtError_t simtStreamEndCapture(simtStream_t stream, simtGraph_t* graph);
simtError_t simtGraphInstantiate(simtGraphExec_t* made, simtGraph_t graph, unsigned long long flags);
simtError_t simtGraphLaunch(simtGraphExec_t graph, simtStream_t stream);
simtError_t simtGraphDestroy(simtGraph_t graph);
simtError_t simtGraphExecDestroy(simtGraphExec_t graph);

namespace simt {

// ThreadSanitizer sees more without: guarding puts the streams' work in an order.
#if defined(__SANITIZE_THREAD__) || defined(SIMT_TSAN)
inline constexpr bool kGuard = false;
#else
inline constexpr bool kGuard = true;
#endif

struct Config {
  int devices = 1;                        // 0: as a machine without one
  int warp_size = 32;                     // 32 or 64
  int workers = 2;                        // OS threads that share a launch's blocks
  std::chrono::microseconds delay{200};   // between a call and the start of its work
  uint64_t seed = 1;                      // of the order in which a block's threads start; 0: by their index
  size_t memory_bytes = size_t{4} << 30;  // of a device
  bool guard = kGuard;                    // the host cannot touch device memory while no work is under way
};

// The start values are above, or as TESSERA_SIMT says: "warp=64,workers=3,delay_us=500,seed=7,devices=2,memory_mb=64,
// guard=0".
const Config& config();
// While no work is under way.
void configure(const Config& config);

struct Counters {
  uint64_t launches = 0;
  uint64_t copies = 0;  // and fills
  uint64_t allocations = 0;
  uint64_t synchronizations = 0;  // waits of the host for work, unintended ones of copies included
};
Counters counters();  // since the start or reset()

// Waits for all streams, then forgets errors and counters. Memory and streams stay.
void reset();

// A launch: `body` runs one GPU thread. Used by the template below.
void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, simtStream_t stream,
            std::function<void()> body);

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            simtStream_t stream, Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's arguments are copied byte by byte");
  static_assert((!std::is_reference_v<Parameters> && ...), "a kernel takes no references");
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "a kernel's arguments have 4096 bytes at most");
  launch(name, grid, block, shared_bytes, stream,
         [kernel, values = std::tuple<Parameters...>(static_cast<Parameters>(std::forward<Arguments>(arguments))...)] {
           std::apply(kernel, values);
         });
}

}  // namespace simt
