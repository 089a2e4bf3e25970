#include "emulator/runtime.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <vector>

#include "emulator/memory.h"
#include "emulator/settings.h"
#include "emulator/stream.h"

namespace emulator {
namespace {

// The driver's state for a process.
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
  emulatorError_t last = emulatorSuccess;
  std::string text;
};

ThreadState& of_thread() {
  static thread_local ThreadState it;
  return it;
}

emulatorError_t fail(emulatorError_t error, std::string text) {
  of_thread().last = error;
  of_thread().text = std::move(text);
  return error;
}

// Every call begins with it, because a sticky error fails all calls.
emulatorError_t begin_call() {
  if (process().config.devices == 0) return fail(emulatorErrorNoDevice, "no CUDA-capable device is detected");
  if (!stuck()) return emulatorSuccess;
  std::lock_guard lock(process().mutex);
  return fail(emulatorErrorLaunchFailure, process().failure);
}

Stream& of(emulatorStream_t stream) { return stream == nullptr ? process().immediate : *stream; }

// For operations that a graph cannot hold: refused during a capture.
emulatorError_t refuse_in_capture(emulatorStream_t stream, const char* what) {
  if (!of(stream).capturing()) return emulatorSuccess;
  of(stream).spoil_capture();
  return fail(emulatorErrorStreamCaptureUnsupported, std::string(what) + " while its stream is being captured");
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
  of_thread().last = emulatorSuccess;
}

void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, emulatorStream_t stream,
            std::function<void()> body) {
  if (begin_call() != emulatorSuccess) return;
  std::string name = kernel;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffffu) {
    fail(emulatorErrorInvalidConfiguration, "a grid has 1 block at least, and 65535 at most in y and z");
    return;
  }
  if (block.x == 0 || block.y == 0 || block.z == 0 || too_large(block)) {
    fail(emulatorErrorInvalidConfiguration, "a block has 1 to 1024 threads");
    return;
  }
  if (shared_bytes > kSharedBytes) {
    fail(emulatorErrorInvalidConfiguration,
         std::to_string(shared_bytes) + " bytes of shared memory; a block has " + std::to_string(kSharedBytes));
    return;
  }
  ++process().launches;
  of(stream).add([launch = Launch{std::move(name), grid, block, shared_bytes, std::move(body)}](Launcher& launcher) {
    std::string error = launcher.run(launch);
    if (!error.empty()) stick(std::move(error));
  });
}

}  // namespace emulator

using namespace emulator;  // the calls below are the vendor's C names

const char* emulatorGetErrorName(emulatorError_t error) {
  switch (error) {
    case emulatorSuccess:
      return "emulatorSuccess";
    case emulatorErrorInvalidValue:
      return "emulatorErrorInvalidValue";
    case emulatorErrorMemoryAllocation:
      return "emulatorErrorMemoryAllocation";
    case emulatorErrorInvalidConfiguration:
      return "emulatorErrorInvalidConfiguration";
    case emulatorErrorInsufficientDriver:
      return "emulatorErrorInsufficientDriver";
    case emulatorErrorNoDevice:
      return "emulatorErrorNoDevice";
    case emulatorErrorInvalidDevice:
      return "emulatorErrorInvalidDevice";
    case emulatorErrorNotReady:
      return "emulatorErrorNotReady";
    case emulatorErrorLaunchFailure:
      return "emulatorErrorLaunchFailure";
    case emulatorErrorStreamCaptureUnsupported:
      return "emulatorErrorStreamCaptureUnsupported";
    case emulatorErrorStreamCaptureInvalidated:
      return "emulatorErrorStreamCaptureInvalidated";
    case emulatorErrorStreamCaptureIsolation:
      return "emulatorErrorStreamCaptureIsolation";
  }
  return "unknown";
}

const char* emulatorGetErrorString(emulatorError_t error) {
  return error == emulatorSuccess         ? "no error"
         : error == emulatorErrorNotReady ? "not ready"
                                          : of_thread().text.c_str();
}

emulatorError_t emulatorGetLastError() {
  const emulatorError_t last = stuck() ? begin_call() : of_thread().last;
  of_thread().last = emulatorSuccess;
  return last;
}

emulatorError_t emulatorGetDeviceCount(int* count) {
  *count = process().config.devices;
  return begin_call();
}

emulatorError_t emulatorGetDevice(int* device) {
  *device = of_thread().device;
  return begin_call();
}

emulatorError_t emulatorSetDevice(int device) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  if (device < 0 || device >= process().config.devices) {
    return fail(emulatorErrorInvalidDevice, "there is no device " + std::to_string(device));
  }
  of_thread().device = device;
  return emulatorSuccess;
}

emulatorError_t emulatorMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = process().config.memory_bytes;
  *free_bytes = *total_bytes - process().memory.used(of_thread().device);
  return begin_call();
}

emulatorError_t emulatorMallocAsync(void** memory, size_t bytes, emulatorStream_t stream) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  if (bytes == 0) return fail(emulatorErrorInvalidValue, "an allocation of 0 bytes");
  if (refuse_in_capture(stream, "allocating") != emulatorSuccess) return of_thread().last;
  std::shared_ptr<Allocation> made;
  try {
    made = process().memory.allocate(bytes, of_thread().device, process().config.memory_bytes);
  } catch (const std::bad_alloc&) {
  }
  if (made == nullptr) return fail(emulatorErrorMemoryAllocation, "out of memory");
  ++process().allocations;
  *memory = made->begin();
  of(stream).add([made](Launcher&) { made->make_usable(); }, true);
  return emulatorSuccess;
}

emulatorError_t emulatorFreeAsync(void* memory, emulatorStream_t stream) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  if (refuse_in_capture(stream, "freeing") != emulatorSuccess) return of_thread().last;
  std::shared_ptr<Allocation> gone = process().memory.release(memory);
  if (gone == nullptr) return fail(emulatorErrorInvalidValue, "what is freed is not allocated");
  of(stream).add(
      [gone](Launcher&) {
        if (!gone->make_unusable()) {
          stick("bytes behind the end of an allocation of " + std::to_string(gone->bytes()) + " have been written");
        }
        process().memory.retire(gone);
      },
      true);
  return emulatorSuccess;
}

emulatorError_t emulatorHostAlloc(void** memory, size_t bytes, unsigned) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  *memory = process().memory.allocate_pinned(bytes);
  return *memory == nullptr ? fail(emulatorErrorMemoryAllocation, "out of memory") : emulatorSuccess;
}

emulatorError_t emulatorFreeHost(void* memory) {
  if (memory == nullptr || process().memory.free_pinned(memory)) return emulatorSuccess;
  return fail(emulatorErrorInvalidValue, "what is freed is not pinned memory");
}

emulatorError_t emulatorMemcpyAsync(void* to, const void* from, size_t bytes, emulatorMemcpyKind,
                                    emulatorStream_t stream) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  std::string wrong;
  const Memory::Place target = process().memory.place(to, bytes, &wrong);
  const Memory::Place source = process().memory.place(from, bytes, &wrong);
  if (!wrong.empty()) return fail(emulatorErrorInvalidValue, "a copy of " + wrong);
  if ((target == Memory::Place::kPageable || source == Memory::Place::kPageable) &&
      refuse_in_capture(stream, "copying from or to pageable memory") != emulatorSuccess) {
    return of_thread().last;
  }
  ++process().copies;
  if (source == Memory::Place::kPageable) {  // the source is read before the call returns
    auto staged =
        std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    of(stream).add([to, staged = std::move(staged)](Launcher&) { std::memcpy(to, staged->data(), staged->size()); });
  } else {
    of(stream).add([to, from, bytes](Launcher&) { std::memmove(to, from, bytes); });
  }
  if (target != Memory::Place::kPageable) return emulatorSuccess;
  ++process().synchronizations;
  of(stream).wait_until_idle();
  return begin_call();
}

emulatorError_t emulatorMemsetAsync(void* memory, int byte, size_t bytes, emulatorStream_t stream) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  std::string wrong;
  process().memory.place(memory, bytes, &wrong);
  if (!wrong.empty()) return fail(emulatorErrorInvalidValue, "a fill of " + wrong);
  ++process().copies;
  of(stream).add([memory, byte, bytes](Launcher&) { std::memset(memory, byte, bytes); });
  return emulatorSuccess;
}

emulatorError_t emulatorStreamCreateWithFlags(emulatorStream_t* stream, unsigned) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  auto made = std::make_unique<Stream>(Stream::Kind::kQueue);
  std::lock_guard lock(process().mutex);
  process().streams.insert(made.get());
  *stream = made.release();
  return emulatorSuccess;
}

emulatorError_t emulatorStreamDestroy(emulatorStream_t stream) {
  {
    std::lock_guard lock(process().mutex);
    if (process().streams.erase(stream) == 0) return emulatorErrorInvalidValue;
  }
  delete stream;
  return emulatorSuccess;
}

emulatorError_t emulatorStreamSynchronize(emulatorStream_t stream) {
  if (refuse_in_capture(stream, "synchronising") != emulatorSuccess) return of_thread().last;
  ++process().synchronizations;
  of(stream).wait_until_idle();
  return begin_call();
}

emulatorError_t emulatorStreamWaitEvent(emulatorStream_t stream, emulatorEvent_t event, unsigned) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  std::shared_ptr<Mark> mark = event->last();
  if (mark == nullptr) return emulatorSuccess;
  if (mark->captured != of(stream).capturing()) {
    if (!mark->captured) of(stream).spoil_capture();
    return fail(emulatorErrorStreamCaptureIsolation, "an event of a capture can only be waited for inside of it");
  }
  if (mark->captured) return emulatorSuccess;  // a graph runs in the order of its only stream
  of(stream).add([mark = std::move(mark)](Launcher&) { mark->wait(); }, true);
  return emulatorSuccess;
}

emulatorError_t emulatorEventCreateWithFlags(emulatorEvent_t* event, unsigned flags) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  *event = new Event((flags & emulatorEventDisableTiming) == 0);
  return emulatorSuccess;
}

emulatorError_t emulatorEventDestroy(emulatorEvent_t event) {
  delete event;
  return emulatorSuccess;
}

emulatorError_t emulatorEventRecord(emulatorEvent_t event, emulatorStream_t stream) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  of(stream).add([mark = event->record(of(stream).capturing())](Launcher&) { mark->reach(); }, true);
  return emulatorSuccess;
}

emulatorError_t emulatorEventSynchronize(emulatorEvent_t event) {
  ++process().synchronizations;
  if (std::shared_ptr<Mark> mark = event->last()) mark->wait();
  return begin_call();
}

emulatorError_t emulatorEventQuery(emulatorEvent_t event) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  std::shared_ptr<Mark> mark = event->last();
  return mark == nullptr || mark->reached() ? emulatorSuccess : emulatorErrorNotReady;
}

emulatorError_t emulatorEventElapsedTime(float* milliseconds, emulatorEvent_t from, emulatorEvent_t to) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  std::shared_ptr<Mark> first = from->last(), second = to->last();
  if (!from->timing() || !to->timing() || first == nullptr || second == nullptr) {
    return fail(emulatorErrorInvalidValue, "an event without timing, or that was never recorded");
  }
  if (!first->reached() || !second->reached()) return emulatorErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(second->time() - first->time()).count();
  return emulatorSuccess;
}

emulatorError_t emulatorStreamBeginCapture(emulatorStream_t stream, emulatorStreamCaptureMode) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  if (of(stream).begin_capture()) return emulatorSuccess;
  return fail(emulatorErrorStreamCaptureUnsupported, "the NULL stream, or one that is being captured already");
}

emulatorError_t emulatorStreamEndCapture(emulatorStream_t stream, emulatorGraph_t* graph) {
  *graph = nullptr;
  if (begin_call() != emulatorSuccess) return of_thread().last;
  if (!of(stream).capturing()) return fail(emulatorErrorInvalidValue, "the stream is not being captured");
  *graph = of(stream).end_capture().release();
  if (*graph != nullptr) return emulatorSuccess;
  return fail(emulatorErrorStreamCaptureInvalidated, "a call during the capture cannot be part of a graph");
}

emulatorError_t emulatorGraphInstantiate(emulatorGraphExec_t* made, emulatorGraph_t graph, unsigned long long) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  *made = new Graph(*graph);
  return emulatorSuccess;
}

emulatorError_t emulatorGraphLaunch(emulatorGraphExec_t graph, emulatorStream_t stream) {
  if (begin_call() != emulatorSuccess) return of_thread().last;
  for (const Task& task : graph->tasks) of(stream).add(task);
  return emulatorSuccess;
}

emulatorError_t emulatorGraphDestroy(emulatorGraph_t graph) {
  delete graph;
  return emulatorSuccess;
}

emulatorError_t emulatorGraphExecDestroy(emulatorGraphExec_t graph) {
  delete graph;
  return emulatorSuccess;
}
