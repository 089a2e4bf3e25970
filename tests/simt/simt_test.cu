// The emulated GPU itself: what is right runs, what is wrong is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
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

class Simt : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    simt::Config config;
    config.warp_size = GetParam();
    simt::configure(config);
    simt::reset();
    stream_ = gpu::stream_create();
  }
  void TearDown() override {
    simt::reset();
    gpu::stream_destroy(stream_);
  }
  gpu::Stream stream_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, Simt, testing::Values(32, 64),
                         [](const auto& info) { return "Warp" + std::to_string(info.param); });

TEST_P(Simt, SumsByShufflesAndSharedMemory) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  DeviceArray<float> in(values, stream_), out(8, stream_);
  GPU_LAUNCH(block_sums, 8, 128, 0, stream_, in.data(), 1000, out.data());
  const std::vector<float> sums = out.host();
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), 500500.0);
  EXPECT_EQ(sums[0], 128 * 129 / 2);
}

TEST_P(Simt, DivergenceAtABarrierIsAnErrorThatSticks) {
  GPU_LAUNCH(diverge, 1, 64, 0, stream_);
  try {
    gpu::stream_synchronize(stream_);
    FAIL() << "no error";
  } catch (const tessera::sdk::Failure& failure) {
    EXPECT_THAT(failure.what(),
                HasSubstr("block (0, 0, 0) of diverge: 16 threads wait at the barrier of simt_test.cu"));
    EXPECT_THAT(failure.what(), HasSubstr("48 of 64 threads have returned"));
  }
  EXPECT_THROW(GPU_LAUNCH(diverge, 1, 64, 0, stream_), tessera::sdk::Failure);
  simt::reset();
  GPU_LAUNCH(diverge, 1, 16, 0, stream_);
  gpu::stream_synchronize(stream_);
}

}  // namespace
