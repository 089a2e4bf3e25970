// Tests the emulated GPU itself: right programs run, wrong ones are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gpu/gpu.h"

namespace {

namespace gpu = tessera::gpu;
using testing::HasSubstr;

GPU_GLOBAL void block_sums(const float* values, int n, float* sums) {
  GPU_SHARED(float, parts, gpu::kMaxWarpSize);
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = i < n ? values[i] : 0.0f;
  for (int step = gpu::warp_size() / 2; step > 0; step /= 2) sum += gpu::shfl_down(sum, step);
  if (gpu::lane() == 0) parts[gpu::warp()] = sum;
  gpu::sync_block();
  if (threadIdx.x == 0) {
    const int warps = static_cast<int>(blockDim.x) / gpu::warp_size();
    for (int w = 1; w < warps; ++w) sum += parts[w];
    sums[blockIdx.x] = sum;
  }
}

GPU_GLOBAL void diverge() {
  if (threadIdx.x < 16) gpu::sync_block();
}

template <class T>
class DeviceArray {
 public:
  DeviceArray(size_t n, gpu::Stream stream) : n_(n), stream_(stream) {
    memory_ = static_cast<T*>(gpu::malloc_async(n * sizeof(T), stream));
  }
  DeviceArray(const std::vector<T>& values, gpu::Stream stream) : DeviceArray(values.size(), stream) {
    gpu::memcpy_async(memory_, values.data(), values.size() * sizeof(T), stream);
  }
  ~DeviceArray() { gpu::free_async(memory_, stream_); }
  T* data() const { return memory_; }
  std::vector<T> host() const {
    std::vector<T> out(n_);
    gpu::memcpy_async(out.data(), memory_, n_ * sizeof(T), stream_);
    gpu::stream_synchronize(stream_);
    return out;
  }

 private:
  T* memory_;
  size_t n_;
  gpu::Stream stream_;
};

class GpuEmulator : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulator::Config config;
    config.warp_size = GetParam();
    emulator::configure(config);
    emulator::reset();
    stream_ = gpu::stream_create();
  }
  void TearDown() override {
    emulator::reset();
    gpu::stream_destroy(stream_);
  }
  gpu::Stream stream_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, GpuEmulator, testing::Values(32, 64),
                         [](const auto& info) { return "Warp" + std::to_string(info.param); });

TEST_P(GpuEmulator, SumsByShufflesAndSharedMemory) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  DeviceArray<float> in(values, stream_), out(8, stream_);
  GPU_LAUNCH(block_sums, 8, 128, 0, stream_, in.data(), 1000, out.data());
  const std::vector<float> sums = out.host();
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), 500500.0);
  EXPECT_EQ(sums[0], 128 * 129 / 2);
}

TEST_P(GpuEmulator, DivergenceAtABarrierIsAnErrorThatSticks) {
  GPU_LAUNCH(diverge, 1, 64, 0, stream_);
  try {
    gpu::stream_synchronize(stream_);
    FAIL() << "no error";
  } catch (const tessera::sdk::Failure& failure) {
    EXPECT_THAT(failure.what(),
                HasSubstr("block (0, 0, 0) of diverge: 16 threads wait at the barrier of emulator_test.cu"));
    EXPECT_THAT(failure.what(), HasSubstr("48 of 64 threads have returned"));
  }
  EXPECT_THROW(GPU_LAUNCH(diverge, 1, 64, 0, stream_), tessera::sdk::Failure);
  emulator::reset();
  GPU_LAUNCH(diverge, 1, 16, 0, stream_);
  gpu::stream_synchronize(stream_);
}

GPU_GLOBAL void add(float* values, float what) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  values[i] += what;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const tessera::sdk::Failure& failure) {
    return failure.what();
  }
  return "no error";
}

TEST_P(GpuEmulator, AGraphRunsItsCaptureAtEachLaunch) {
  DeviceArray<float> values(std::vector<float>(64, 1.0f), stream_);
  gpu::stream_synchronize(stream_);
  gpu::capture_begin(stream_);
  GPU_LAUNCH(add, 2, 32, 0, stream_, values.data(), 2.0f);
  GPU_LAUNCH(add, 2, 32, 0, stream_, values.data(), 3.0f);
  gpu::Graph graph = gpu::capture_end(stream_);
  EXPECT_EQ(values.host(), std::vector<float>(64, 1.0f));
  for (int i = 0; i < 3; ++i) gpu::graph_launch(graph, stream_);
  EXPECT_EQ(values.host(), std::vector<float>(64, 16.0f));
  gpu::graph_destroy(graph);
}

TEST_P(GpuEmulator, WhatAGraphCannotHoldEndsItsCapture) {
  DeviceArray<float> values(std::vector<float>(64, 1.0f), stream_);
  float host[64] = {};
  const auto in_capture = [&](const std::function<void()>& body) {
    gpu::capture_begin(stream_);
    const std::string said = error_of(body);
    EXPECT_THAT(error_of([&] { gpu::capture_end(stream_); }), HasSubstr("emulatorErrorStreamCaptureInvalidated"));
    return said;
  };
  EXPECT_THAT(in_capture([&] { gpu::malloc_async(64, stream_); }), HasSubstr("allocating while its stream"));
  EXPECT_THAT(in_capture([&] { gpu::stream_synchronize(stream_); }), HasSubstr("synchronising while its stream"));
  EXPECT_THAT(in_capture([&] { gpu::memcpy_async(values.data(), host, sizeof(host), stream_); }),
              HasSubstr("pageable memory while its stream"));
  gpu::Event event = gpu::event_create();
  gpu::event_record(event, stream_);
  EXPECT_THAT(in_capture([&] { gpu::stream_wait(stream_, event); }), HasSubstr("emulatorErrorStreamCaptureIsolation"));
  gpu::event_destroy(event);
  EXPECT_THAT(error_of([&] { gpu::capture_begin(nullptr); }), HasSubstr("the NULL stream"));
}

TEST_P(GpuEmulator, LaunchesThatNoGpuTakesAreRefused) {
  EXPECT_THAT(error_of([&] { GPU_LAUNCH(diverge, 0, 32, 0, stream_); }),
              HasSubstr("cannot launch diverge: a grid has 1 block at least"));
  EXPECT_THAT(error_of([&] { GPU_LAUNCH(diverge, 1, 1025, 0, stream_); }), HasSubstr("1 to 1024 threads"));
  EXPECT_THAT(error_of([&] { GPU_LAUNCH(diverge, 1, 32, 49153, stream_); }),
              HasSubstr("49153 bytes of shared memory; a block has 49152"));
  GPU_LAUNCH(diverge, 1, 16, 0, stream_);  // not caused by the next one
}

TEST_P(GpuEmulator, CopiesOutsideAnAllocationAreRefused) {
  DeviceArray<float> values(64, stream_);
  std::vector<float> host(65);
  EXPECT_THAT(error_of([&] { gpu::memcpy_async(host.data(), values.data(), 65 * sizeof(float), stream_); }),
              HasSubstr("a copy of 260 bytes from byte 0 of an allocation of 256"));
  EXPECT_THAT(error_of([&] { gpu::malloc_async(size_t{1} << 40, stream_); }),
              HasSubstr("cannot allocate 1099511627776 bytes of device memory: out of memory"));
}

TEST_P(GpuEmulator, NoDeviceIsSaid) {
  emulator::Config none = emulator::config();
  none.devices = 0;
  gpu::stream_destroy(stream_);
  emulator::configure(none);
  EXPECT_EQ(gpu::device_count(), 0);
  EXPECT_THAT(error_of([] { gpu::require_device(); }), HasSubstr("no emulated device: "));
  none.devices = 1;
  emulator::configure(none);
  stream_ = gpu::stream_create();
}

TEST_P(GpuEmulator, EventsAreTimesAndOrder) {
  gpu::Event first = gpu::event_create(gpu::Timing::kOn), second = gpu::event_create(gpu::Timing::kOn);
  DeviceArray<float> values(std::vector<float>(64, 1.0f), stream_);
  gpu::event_record(first, stream_);
  GPU_LAUNCH(add, 2, 32, 0, stream_, values.data(), 2.0f);
  gpu::event_record(second, stream_);
  gpu::event_synchronize(second);
  EXPECT_TRUE(gpu::event_done(first));
  EXPECT_GE(gpu::event_elapsed_ms(first, second), 0.0f);
  gpu::event_destroy(first);
  gpu::event_destroy(second);
}

}  // namespace
