// faults NAME: a program with the mistake of that name. tests/gpu_emulator/CMakeLists.txt lists the tool that finds it.
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu.h"

namespace {

namespace gpu = tessera::gpu;

enum class Fault { kNone, kMissingBarrier, kSharedOverrun, kDivergence, kTwoBarriers, kMissingLanes };

// Sums 64 values: every thread writes shared memory, the first one reads it.
GPU_GLOBAL void sum64(const float* values, float* sum, Fault fault) {
  GPU_SHARED(float, parts, 64);
  const int i = static_cast<int>(threadIdx.x);
  float* const mine = parts + i + (fault == Fault::kSharedOverrun ? 1 : 0);
  *mine = values[i];
  if (fault == Fault::kDivergence) {
    if (i < 32) gpu::sync_block();
  } else if (fault == Fault::kTwoBarriers) {
    if (i < 32) {
      gpu::sync_block();
    } else {
      gpu::sync_block();
    }
  } else if (fault != Fault::kMissingBarrier) {
    gpu::sync_block();
  }
  if (fault == Fault::kMissingLanes && i != 5) gpu::shfl_xor(i, 1);
  if (i != 0) return;
  float total = 0;
  for (int k = 0; k < 64; ++k) total += parts[k];
  *sum = total;
}

GPU_GLOBAL void add_one(float* values, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) values[i] += 1.0f;
}

GPU_GLOBAL void wait_for(const std::atomic<bool>* flag) {
  while (!*flag) std::this_thread::yield();
}

float* filled(int n, gpu::Stream stream) {
  std::vector<float> ones(n, 1.0f);
  auto* memory = static_cast<float*>(gpu::malloc_async(n * sizeof(float), stream));
  gpu::memcpy_async(memory, ones.data(), n * sizeof(float), stream);
  return memory;
}

int verdict(float got, float expected) {
  if (got == expected) {
    std::puts("right");
    return 0;
  }
  std::printf("wrong: %g instead of %g\n", got, expected);
  return 1;
}

int in_a_block(Fault fault) {
  gpu::Stream stream = gpu::stream_create();
  float* values = filled(64, stream);
  float* sum = filled(1, stream);
  GPU_LAUNCH(sum64, 1, 64, 0, stream, values, sum, fault);
  float out = 0;
  gpu::memcpy_async(&out, sum, sizeof(out), stream);
  gpu::free_async(values, stream);
  gpu::free_async(sum, stream);
  gpu::stream_synchronize(stream);
  gpu::stream_destroy(stream);
  return verdict(out, 64);
}

// The second stream does not wait for the first; with an event it would.
int unordered(bool wait) {
  gpu::Stream first = gpu::stream_create(), second = gpu::stream_create();
  constexpr int kCount = 1 << 16;
  float* values = filled(kCount, first);
  gpu::stream_synchronize(first);
  gpu::Event done = gpu::event_create();
  for (int i = 0; i < 8; ++i) GPU_LAUNCH(add_one, kCount / 256, 256, 0, first, values, kCount);
  gpu::event_record(done, first);
  if (wait) gpu::stream_wait(second, done);
  auto* copy = static_cast<float*>(gpu::host_alloc(kCount * sizeof(float)));
  gpu::memcpy_async(copy, values, kCount * sizeof(float), second);
  gpu::stream_synchronize(second);
  const int status = verdict(copy[kCount - 1], 9);
  gpu::free_async(values, first);
  gpu::stream_destroy(first);
  gpu::stream_destroy(second);
  gpu::event_destroy(done);
  gpu::host_free(copy);
  return status;
}

// The allocation follows a kernel that ends only when the host says so.
int before_allocation() {
  gpu::Stream first = gpu::stream_create(), second = gpu::stream_create();
  std::atomic<bool> go_on{false};
  GPU_LAUNCH(wait_for, 1, 1, 0, first, &go_on);
  auto* values = static_cast<float*>(gpu::malloc_async(64 * sizeof(float), first));
  GPU_LAUNCH(add_one, 1, 64, 0, second, values, 64);
  gpu::stream_synchronize(second);
  go_on = true;
  gpu::stream_destroy(first);
  return 0;
}

int after_free() {
  gpu::Stream stream = gpu::stream_create();
  float* values = filled(64, stream);
  gpu::free_async(values, stream);
  GPU_LAUNCH(add_one, 1, 64, 0, stream, values, 64);
  gpu::stream_synchronize(stream);
  return 0;
}

int overrun() {
  gpu::Stream stream = gpu::stream_create();
  float* values = filled(63, stream);
  GPU_LAUNCH(add_one, 1, 64, 0, stream, values, 64);
  gpu::free_async(values, stream);
  gpu::stream_synchronize(stream);
  return 0;
}

int host_access() {
  gpu::Stream stream = gpu::stream_create();
  float* values = filled(64, stream);
  gpu::stream_synchronize(stream);
  return verdict(values[3], 1);
}

int run(const std::string& name) {
  if (name == "none") return in_a_block(Fault::kNone) + unordered(true);
  if (name == "missing_barrier") return in_a_block(Fault::kMissingBarrier);
  if (name == "shared_overrun") return in_a_block(Fault::kSharedOverrun);
  if (name == "divergence") return in_a_block(Fault::kDivergence);
  if (name == "two_barriers") return in_a_block(Fault::kTwoBarriers);
  if (name == "missing_lanes") return in_a_block(Fault::kMissingLanes);
  if (name == "unordered") return unordered(false);
  if (name == "before_allocation") return before_allocation();
  if (name == "after_free") return after_free();
  if (name == "overrun") return overrun();
  if (name == "host_access") return host_access();
  std::fprintf(stderr, "there is no fault \"%s\"\n", name.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc == 2 ? argv[1] : "");
  } catch (const tessera::sdk::Failure& failure) {
    std::printf("failed: %s\n", failure.what());
    return 1;
  }
}
