// emulator/runtime.h - the host's calls of the emulated GPU, shaped like CUDA's and HIP's so that gpu/runtime.h needs
// one spelling for all three. Namespace emulator has further functions for tests.
//
// Emulated behaviour, and how mistakes become visible:
//   * A stream is a thread with a queue: a call returns at once, and its work starts Config::delay later, after all
//     work enqueued before it. Only events and synchronisation order streams. The NULL stream is the exception: a call
//     there is done when it returns.
//   * Memory of emulatorMallocAsync cannot be touched before its allocation is reached in its stream (a segmentation
//     fault), begins filled with 0xA5, and cannot be touched after its free was reached. Bytes after its end are
//     watched: AddressSanitizer reports a write; without it, the free fails.
//   * The host cannot touch device memory while no work is under way (Config::guard): a segmentation fault, as on a
//     machine with a GPU.
//   * Host memory that is not emulatorHostAlloc's is copied from, or to, before the call returns; pinned memory is not.
//   * If a kernel cannot go on (threads wait at a barrier that others never reach), or wrote after the end of an
//     allocation, all later work is skipped and every later call fails with emulatorErrorLaunchFailure, as in CUDA.
//     emulatorGetErrorString then returns the sentence. emulator::reset() begins anew.
//   * A stream that is being captured records its work for a graph. Operations that would make the graph wrong, or
//     wait, end the capture: allocating, freeing, copies from or to pageable memory, synchronising, events of other
//     streams.
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

namespace emulator {
class Stream;
class Event;
class Graph;
}  // namespace emulator

using emulatorStream_t = emulator::Stream*;
using emulatorEvent_t = emulator::Event*;
using emulatorGraph_t = emulator::Graph*;
using emulatorGraphExec_t = emulator::Graph*;

enum emulatorError_t {
  emulatorSuccess = 0,
  emulatorErrorInvalidValue = 1,
  emulatorErrorMemoryAllocation = 2,
  emulatorErrorInvalidConfiguration = 9,
  emulatorErrorInsufficientDriver = 35,
  emulatorErrorNoDevice = 100,
  emulatorErrorInvalidDevice = 101,
  emulatorErrorNotReady = 600,
  emulatorErrorLaunchFailure = 719,
  emulatorErrorStreamCaptureUnsupported = 900,
  emulatorErrorStreamCaptureInvalidated = 901,
  emulatorErrorStreamCaptureIsolation = 905,
};
enum emulatorStreamCaptureMode { emulatorStreamCaptureModeThreadLocal = 1 };
enum emulatorMemcpyKind { emulatorMemcpyDefault = 4 };
enum : unsigned { emulatorStreamNonBlocking = 1, emulatorEventDefault = 0, emulatorEventDisableTiming = 2 };

const char* emulatorGetErrorName(emulatorError_t error);
const char* emulatorGetErrorString(emulatorError_t error);  // of this thread's last error, until its next call
emulatorError_t emulatorGetLastError();                     // also clears it, unless it is sticky

emulatorError_t emulatorGetDeviceCount(int* count);
emulatorError_t emulatorGetDevice(int* device);
emulatorError_t emulatorSetDevice(int device);
emulatorError_t emulatorMemGetInfo(size_t* free_bytes, size_t* total_bytes);

emulatorError_t emulatorMallocAsync(void** memory, size_t bytes, emulatorStream_t stream);
emulatorError_t emulatorFreeAsync(void* memory, emulatorStream_t stream);
emulatorError_t emulatorHostAlloc(void** memory, size_t bytes, unsigned flags);
emulatorError_t emulatorFreeHost(void* memory);
emulatorError_t emulatorMemcpyAsync(void* to, const void* from, size_t bytes, emulatorMemcpyKind kind,
                                    emulatorStream_t stream);
emulatorError_t emulatorMemsetAsync(void* memory, int byte, size_t bytes, emulatorStream_t stream);

emulatorError_t emulatorStreamCreateWithFlags(emulatorStream_t* stream, unsigned flags);
emulatorError_t emulatorStreamDestroy(emulatorStream_t stream);
emulatorError_t emulatorStreamSynchronize(emulatorStream_t stream);
emulatorError_t emulatorStreamWaitEvent(emulatorStream_t stream, emulatorEvent_t event, unsigned flags);

emulatorError_t emulatorEventCreateWithFlags(emulatorEvent_t* event, unsigned flags);
emulatorError_t emulatorEventDestroy(emulatorEvent_t event);
emulatorError_t emulatorEventRecord(emulatorEvent_t event, emulatorStream_t stream);
emulatorError_t emulatorEventSynchronize(emulatorEvent_t event);
emulatorError_t emulatorEventQuery(emulatorEvent_t event);
emulatorError_t emulatorEventElapsedTime(float* milliseconds, emulatorEvent_t from, emulatorEvent_t to);

emulatorError_t emulatorStreamBeginCapture(emulatorStream_t stream, emulatorStreamCaptureMode mode);
emulatorError_t emulatorStreamEndCapture(emulatorStream_t stream, emulatorGraph_t* graph);
emulatorError_t emulatorGraphInstantiate(emulatorGraphExec_t* made, emulatorGraph_t graph, unsigned long long flags);
emulatorError_t emulatorGraphLaunch(emulatorGraphExec_t graph, emulatorStream_t stream);
emulatorError_t emulatorGraphDestroy(emulatorGraph_t graph);
emulatorError_t emulatorGraphExecDestroy(emulatorGraphExec_t graph);

namespace emulator {

// ThreadSanitizer finds more without guarding, which orders the streams' work.
#if defined(__SANITIZE_THREAD__) || defined(EMULATOR_TSAN)
inline constexpr bool kGuard = false;
#else
inline constexpr bool kGuard = true;
#endif

struct Config {
  int devices = 1;                        // 0: like a machine without a GPU
  int warp_size = 32;                     // 32 or 64
  int workers = 2;                        // OS threads that share a launch's blocks
  std::chrono::microseconds delay{200};   // between a call and the start of its work
  uint64_t seed = 1;                      // of the order in which a block's threads start; 0: by index
  size_t memory_bytes = size_t{4} << 30;  // per device
  bool guard = kGuard;                    // the host cannot touch device memory while no work is under way
};

// The default is above, or as TESSERA_GPU_EMULATOR says: "warp=64,workers=3,delay_us=500,seed=7,devices=2,memory_mb=64,
// guard=0".
const Config& config();
// May be called only while no work is under way.
void configure(const Config& config);

struct Counters {
  uint64_t launches = 0;
  uint64_t copies = 0;  // includes fills
  uint64_t allocations = 0;
  uint64_t synchronizations = 0;  // waits of the host for work, including implicit ones of copies
};
Counters counters();  // since the start or reset()

// Waits for all streams, then forgets errors and counters. Memory and streams stay.
void reset();

// A launch; `body` runs one GPU thread. Used by the template below.
void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, emulatorStream_t stream,
            std::function<void()> body);

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            emulatorStream_t stream, Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's arguments are copied byte by byte");
  static_assert((!std::is_reference_v<Parameters> && ...), "a kernel takes no references");
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "a kernel's arguments have 4096 bytes at most");
  launch(name, grid, block, shared_bytes, stream,
         [kernel, values = std::tuple<Parameters...>(static_cast<Parameters>(std::forward<Arguments>(arguments))...)] {
           std::apply(kernel, values);
         });
}

}  // namespace emulator
