#include "simt/runtime.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <vector>

#include "simt/memory.h"
#include "simt/settings.h"
#include "simt/stream.h"

namespace simt {
namespace {

// What a driver keeps for a process.
struct Process {
  Process() { memory.explain_faults(); }
  Config config = settings_from_environment();
  Memory memory;
  Stream immediate{Stream::Kind::kImmediate};
  std::mutex mutex;
  std::set<Stream*> streams;
  std::atomic<bool> failed{false};
  std::string failure;
  std::atomic<uint64_t> launches{0}, copies{0}, allocations{0}, synchronizations{0};
};

Process& process() {
  static Process it;
  return it;
}

struct ThreadState {
  int device = 0;
  simtError_t last = simtSuccess;
  std::string text;
};

ThreadState& of_thread() {
  static thread_local ThreadState it;
  return it;
}

simtError_t fail(simtError_t error, std::string text) {
  of_thread().last = error;
  of_thread().text = std::move(text);
  return error;
}

// Every call begins with it: an error that sticks fails all.
simtError_t begin_call() {
  if (process().config.devices == 0) return fail(simtErrorNoDevice, "no CUDA-capable device is detected");
  if (!stuck()) return simtSuccess;
  std::lock_guard lock(process().mutex);
  return fail(simtErrorLaunchFailure, process().failure);
}

Stream& of(simtStream_t stream) { return stream == nullptr ? process().immediate : *stream; }

// For what a graph cannot hold: refused while the stream is being captured.
simtError_t refuse_in_capture(simtStream_t stream, const char* what) {
  if (!of(stream).capturing()) return simtSuccess;
  of(stream).spoil_capture();
  return fail(simtErrorStreamCaptureUnsupported, std::string(what) + " while its stream is being captured");
}

bool too_large(const dim3& block) {
  return block.x > kMaxThreads || block.y > kMaxThreads || block.z > 64 ||
         uint64_t{block.x} * block.y * block.z > kMaxThreads;
}

}  // namespace

void stick(std::string sentence) {
  std::lock_guard lock(process().mutex);
  if (process().failed) return;
  process().failure = std::move(sentence);
  process().failed = true;
}

void begin_work() { process().memory.begin_work(process().config.guard); }
void end_work() { process().memory.end_work(process().config.guard); }

bool stuck() { return process().failed; }

const Config& config() { return process().config; }
void configure(const Config& config) { process().config = config; }
int warp_size() { return process().config.warp_size; }

Counters counters() {
  const Process& p = process();
  return {p.launches, p.copies, p.allocations, p.synchronizations};
}

void reset() {
  Process& p = process();
  std::vector<Stream*> streams;
  {
    std::lock_guard lock(p.mutex);
    streams.assign(p.streams.begin(), p.streams.end());
  }
  for (Stream* stream : streams) stream->wait_until_idle();
  p.failed = false;
  p.launches = p.copies = p.allocations = p.synchronizations = 0;
  of_thread().last = simtSuccess;
}

void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, simtStream_t stream,
            std::function<void()> body) {
  if (begin_call() != simtSuccess) return;
  std::string name = kernel;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffffu) {
    fail(simtErrorInvalidConfiguration, "a grid has 1 block at least, and 65535 at most in y and z");
    return;
  }
  if (block.x == 0 || block.y == 0 || block.z == 0 || too_large(block)) {
    fail(simtErrorInvalidConfiguration, "a block has 1 to 1024 threads");
    return;
  }
  if (shared_bytes > kSharedBytes) {
    fail(simtErrorInvalidConfiguration,
         std::to_string(shared_bytes) + " bytes of shared memory; a block has " + std::to_string(kSharedBytes));
    return;
  }
  ++process().launches;
  of(stream).add([launch = Launch{std::move(name), grid, block, shared_bytes, std::move(body)}](Launcher& launcher) {
    std::string error = launcher.run(launch);
    if (!error.empty()) stick(std::move(error));
  });
}

}  // namespace simt

using namespace simt;  // NOLINT: the calls below are the vendor's C names

const char* simtGetErrorName(simtError_t error) {
  switch (error) {
    case simtSuccess:
      return "simtSuccess";
    case simtErrorInvalidValue:
      return "simtErrorInvalidValue";
    case simtErrorMemoryAllocation:
      return "simtErrorMemoryAllocation";
    case simtErrorInvalidConfiguration:
      return "simtErrorInvalidConfiguration";
    case simtErrorInsufficientDriver:
      return "simtErrorInsufficientDriver";
    case simtErrorNoDevice:
      return "simtErrorNoDevice";
    case simtErrorInvalidDevice:
      return "simtErrorInvalidDevice";
    case simtErrorNotReady:
      return "simtErrorNotReady";
    case simtErrorLaunchFailure:
      return "simtErrorLaunchFailure";
    case simtErrorStreamCaptureUnsupported:
      return "simtErrorStreamCaptureUnsupported";
    case simtErrorStreamCaptureInvalidated:
      return "simtErrorStreamCaptureInvalidated";
    case simtErrorStreamCaptureIsolation:
      return "simtErrorStreamCaptureIsolation";
  }
  return "unknown";
}

const char* simtGetErrorString(simtError_t error) {
  return error == simtSuccess ? "no error" : error == simtErrorNotReady ? "not ready" : of_thread().text.c_str();
}

simtError_t simtGetLastError() {
  const simtError_t last = stuck() ? begin_call() : of_thread().last;
  of_thread().last = simtSuccess;
  return last;
}

simtError_t simtGetDeviceCount(int* count) {
  *count = process().config.devices;
  return begin_call();
}

simtError_t simtGetDevice(int* device) {
  *device = of_thread().device;
  return begin_call();
}

simtError_t simtSetDevice(int device) {
  if (begin_call() != simtSuccess) return of_thread().last;
  if (device < 0 || device >= process().config.devices) {
    return fail(simtErrorInvalidDevice, "there is no device " + std::to_string(device));
  }
  of_thread().device = device;
  return simtSuccess;
}

simtError_t simtMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = process().config.memory_bytes;
  *free_bytes = *total_bytes - process().memory.used(of_thread().device);
  return begin_call();
}

simtError_t simtMallocAsync(void** memory, size_t bytes, simtStream_t stream) {
  if (begin_call() != simtSuccess) return of_thread().last;
  if (bytes == 0) return fail(simtErrorInvalidValue, "an allocation of 0 bytes");
  if (refuse_in_capture(stream, "allocating") != simtSuccess) return of_thread().last;
  std::shared_ptr<Allocation> made;
  try {
    made = process().memory.allocate(bytes, of_thread().device, process().config.memory_bytes);
  } catch (const std::bad_alloc&) {
  }
  if (made == nullptr) return fail(simtErrorMemoryAllocation, "out of memory");
  ++process().allocations;
  *memory = made->begin();
  of(stream).add([made](Launcher&) { made->make_usable(); }, true);
  return simtSuccess;
}

simtError_t simtFreeAsync(void* memory, simtStream_t stream) {
  if (begin_call() != simtSuccess) return of_thread().last;
  if (refuse_in_capture(stream, "freeing") != simtSuccess) return of_thread().last;
  std::shared_ptr<Allocation> gone = process().memory.release(memory);
  if (gone == nullptr) return fail(simtErrorInvalidValue, "what is freed is not allocated");
  of(stream).add(
      [gone](Launcher&) {
        if (!gone->make_unusable()) {
          stick("bytes behind the end of an allocation of " + std::to_string(gone->bytes()) + " have been written");
        }
        process().memory.retire(gone);
      },
      true);
  return simtSuccess;
}

simtError_t simtHostAlloc(void** memory, size_t bytes, unsigned) {
  if (begin_call() != simtSuccess) return of_thread().last;
  *memory = process().memory.allocate_pinned(bytes);
  return *memory == nullptr ? fail(simtErrorMemoryAllocation, "out of memory") : simtSuccess;
}

simtError_t simtFreeHost(void* memory) {
  if (memory == nullptr || process().memory.free_pinned(memory)) return simtSuccess;
  return fail(simtErrorInvalidValue, "what is freed is not pinned memory");
}

simtError_t simtMemcpyAsync(void* to, const void* from, size_t bytes, simtMemcpyKind, simtStream_t stream) {
  if (begin_call() != simtSuccess) return of_thread().last;
  std::string wrong;
  const Memory::Place target = process().memory.place(to, bytes, &wrong);
  const Memory::Place source = process().memory.place(from, bytes, &wrong);
  if (!wrong.empty()) return fail(simtErrorInvalidValue, "a copy of " + wrong);
  if ((target == Memory::Place::kPageable || source == Memory::Place::kPageable) &&
      refuse_in_capture(stream, "copying from or to pageable memory") != simtSuccess) {
    return of_thread().last;
  }
  ++process().copies;
  if (source == Memory::Place::kPageable) {  // read before the call returns
    auto staged =
        std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    of(stream).add([to, staged = std::move(staged)](Launcher&) { std::memcpy(to, staged->data(), staged->size()); });
  } else {
    of(stream).add([to, from, bytes](Launcher&) { std::memmove(to, from, bytes); });
  }
  if (target != Memory::Place::kPageable) return simtSuccess;
  ++process().synchronizations;
  of(stream).wait_until_idle();
  return begin_call();
}

simtError_t simtMemsetAsync(void* memory, int byte, size_t bytes, simtStream_t stream) {
  if (begin_call() != simtSuccess) return of_thread().last;
  std::string wrong;
  process().memory.place(memory, bytes, &wrong);
  if (!wrong.empty()) return fail(simtErrorInvalidValue, "a fill of " + wrong);
  ++process().copies;
  of(stream).add([memory, byte, bytes](Launcher&) { std::memset(memory, byte, bytes); });
  return simtSuccess;
}

simtError_t simtStreamCreateWithFlags(simtStream_t* stream, unsigned) {
  if (begin_call() != simtSuccess) return of_thread().last;
  auto made = std::make_unique<Stream>(Stream::Kind::kQueue);
  std::lock_guard lock(process().mutex);
  process().streams.insert(made.get());
  *stream = made.release();
  return simtSuccess;
}

simtError_t simtStreamDestroy(simtStream_t stream) {
  {
    std::lock_guard lock(process().mutex);
    if (process().streams.erase(stream) == 0) return simtErrorInvalidValue;
  }
  delete stream;
  return simtSuccess;
}

simtError_t simtStreamSynchronize(simtStream_t stream) {
  if (refuse_in_capture(stream, "synchronising") != simtSuccess) return of_thread().last;
  ++process().synchronizations;
  of(stream).wait_until_idle();
  return begin_call();
}

simtError_t simtStreamWaitEvent(simtStream_t stream, simtEvent_t event, unsigned) {
  if (begin_call() != simtSuccess) return of_thread().last;
  std::shared_ptr<Mark> mark = event->last();
  if (mark == nullptr) return simtSuccess;
  if (mark->captured != of(stream).capturing()) {
    if (!mark->captured) of(stream).spoil_capture();
    return fail(simtErrorStreamCaptureIsolation, "an event of a capture can only be waited for inside of it");
  }
  if (mark->captured) return simtSuccess;  // the graph runs in the order of its one stream
  of(stream).add([mark = std::move(mark)](Launcher&) { mark->wait(); }, true);
  return simtSuccess;
}

simtError_t simtEventCreateWithFlags(simtEvent_t* event, unsigned flags) {
  if (begin_call() != simtSuccess) return of_thread().last;
  *event = new Event((flags & simtEventDisableTiming) == 0);
  return simtSuccess;
}

simtError_t simtEventDestroy(simtEvent_t event) {
  delete event;
  return simtSuccess;
}

simtError_t simtEventRecord(simtEvent_t event, simtStream_t stream) {
  if (begin_call() != simtSuccess) return of_thread().last;
  of(stream).add([mark = event->record(of(stream).capturing())](Launcher&) { mark->reach(); }, true);
  return simtSuccess;
}

simtError_t simtEventSynchronize(simtEvent_t event) {
  ++process().synchronizations;
  if (std::shared_ptr<Mark> mark = event->last()) mark->wait();
  return begin_call();
}

simtError_t simtEventQuery(simtEvent_t event) {
  if (begin_call() != simtSuccess) return of_thread().last;
  std::shared_ptr<Mark> mark = event->last();
  return mark == nullptr || mark->reached() ? simtSuccess : simtErrorNotReady;
}

simtError_t simtEventElapsedTime(float* milliseconds, simtEvent_t from, simtEvent_t to) {
  if (begin_call() != simtSuccess) return of_thread().last;
  std::shared_ptr<Mark> first = from->last(), second = to->last();
  if (!from->timing() || !to->timing() || first == nullptr || second == nullptr) {
    return fail(simtErrorInvalidValue, "an event without timing, or that was never recorded");
  }
  if (!first->reached() || !second->reached()) return simtErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(second->time() - first->time()).count();
  return simtSuccess;
}

simtError_t simtStreamBeginCapture(simtStream_t stream, simtStreamCaptureMode) {
  if (begin_call() != simtSuccess) return of_thread().last;
  if (of(stream).begin_capture()) return simtSuccess;
  return fail(simtErrorStreamCaptureUnsupported, "the NULL stream, or one that is being captured already");
}

simtError_t simtStreamEndCapture(simtStream_t stream, simtGraph_t* graph) {
  *graph = nullptr;
  if (begin_call() != simtSuccess) return of_thread().last;
  if (!of(stream).capturing()) return fail(simtErrorInvalidValue, "the stream is not being captured");
  *graph = of(stream).end_capture().release();
  if (*graph != nullptr) return simtSuccess;
  return fail(simtErrorStreamCaptureInvalidated, "a call during the capture cannot be part of a graph");
}

simtError_t simtGraphInstantiate(simtGraphExec_t* made, simtGraph_t graph, unsigned long long) {
  if (begin_call() != simtSuccess) return of_thread().last;
  *made = new Graph(*graph);
  return simtSuccess;
}

simtError_t simtGraphLaunch(simtGraphExec_t graph, simtStream_t stream) {
  if (begin_call() != simtSuccess) return of_thread().last;
  for (const Task& task : graph->tasks) of(stream).add(task);
  return simtSuccess;
}

simtError_t simtGraphDestroy(simtGraph_t graph) {
  delete graph;
  return simtSuccess;
}

simtError_t simtGraphExecDestroy(simtGraphExec_t graph) {
  delete graph;
  return simtSuccess;
}
