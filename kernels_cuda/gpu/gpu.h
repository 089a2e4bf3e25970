// gpu/gpu.h - device code in one spelling for three compilers. The build defines one of
//   TESSERA_GPU_CUDA  nvcc, and the host compiler for a CUDA plugin's host files
//   TESSERA_GPU_HIP   clang's HIP for AMD, and the host compiler for a HIP plugin's host files
//   TESSERA_GPU_EMULATOR  any C++ compiler: the CPU emulator of tests/gpu_emulator, one fiber for each GPU thread
// This is the only file that includes a vendor's header. Host calls (memory, streams, events) are in gpu/runtime.h,
// which comes with it.
//
// Kernels are `GPU_GLOBAL void k(...)` and use threadIdx, blockIdx, blockDim and gridDim as in CUDA and HIP. Arguments
// are trivially copyable, in all at most 4096 bytes. Launches are GPU_LAUNCH(k, grid, block, shared_bytes, stream,
// args...). A kernel template with several arguments needs parentheses: GPU_LAUNCH((k<A, B>), ...). A launch that is
// refused throws sdk::Failure with the kernel's name. Do not launch a grid of 0 blocks, which is refused everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(TESSERA_GPU_CUDA)
#include <cuda_runtime.h>
#define GPU_API(name) cuda##name
#define GPU_CONSTANT(name) cuda##name
#define GPU_KIND_NAME "cuda"
#define GPU_VENDOR "CUDA"
#if defined(__CUDACC__)
#define GPU_DEVICE_CODE 1
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#endif
#elif defined(TESSERA_GPU_HIP)
#if defined(__HIPCC__) || defined(__HIP__)
#define GPU_DEVICE_CODE 1
#include <hip/hip_runtime.h>
#else
#include <hip/hip_runtime_api.h>
#endif
#define GPU_API(name) hip##name
#define GPU_CONSTANT(name) hip##name
#define GPU_KIND_NAME "hip"
#define GPU_VENDOR "HIP"
#elif defined(TESSERA_GPU_EMULATOR)
#define GPU_DEVICE_CODE 1
#include "emulator/device.h"
#include "emulator/runtime.h"
#include "tessera/sdk/half.h"
#define GPU_API(name) emulator##name
#define GPU_CONSTANT(name) emulator##name
#define GPU_KIND_NAME "emulator"
#define GPU_VENDOR "emulated"
#else
#error "define TESSERA_GPU_CUDA, TESSERA_GPU_HIP or TESSERA_GPU_EMULATOR (tessera_add_gpu_plugin does)"
#endif

#include "gpu/runtime.h"

namespace tessera::gpu {

// An upper bound on the lanes of a warp, for arrays.
inline constexpr int kMaxWarpSize = 64;

// float16 and bfloat16 as stored; arithmetic is in float.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// N values that are read and written at once. The address must be a multiple of sizeof(Pack).
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

}  // namespace tessera::gpu

#if defined(GPU_DEVICE_CODE)

#if defined(TESSERA_GPU_EMULATOR)
#define GPU_GLOBAL
#define GPU_DEVICE inline
#define GPU_HOST_DEVICE inline
#define GPU_LAUNCH_BOUNDS(threads)
#define GPU_LAUNCH_BOUNDS_OF(threads, blocks)
#define GPU_UNROLL
// An array shared by the threads of a block; its content is undefined at first. It has no constructors.
#define GPU_SHARED(T, name, count)                                          \
  static const char name##_key = 0; /* its address names the declaration */ \
  auto& name = *static_cast<T(*)[count]>(::emulator::shared_memory(&name##_key, sizeof(T[count]), alignof(T)))
// The launch's shared_bytes, as a T*.
#define GPU_SHARED_DYNAMIC(T, name) T* const name = static_cast<T*>(::emulator::dynamic_shared_memory())
#define GPU_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                    \
  (::emulator::launch(#kernel, kernel, grid, block, shared_bytes, stream __VA_OPT__(, ) __VA_ARGS__), \
   ::tessera::gpu::launch_error(#kernel))
#else
#define GPU_GLOBAL __global__
#define GPU_DEVICE __device__ __forceinline__
#define GPU_HOST_DEVICE __host__ __device__ __forceinline__
#define GPU_LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
// Launch bounds with a number of concurrent blocks on a multiprocessor, for kernels that gain from fewer registers per
// thread. nvcc may spill registers for it.
#if defined(TESSERA_GPU_CUDA)
#define GPU_LAUNCH_BOUNDS_OF(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define GPU_LAUNCH_BOUNDS_OF(threads, blocks) __launch_bounds__(threads)
#endif
#define GPU_UNROLL _Pragma("unroll")
#define GPU_SHARED(T, name, count) __shared__ T name[count]
#define GPU_SHARED_DYNAMIC(T, name)                                    \
  extern __shared__ __align__(16) unsigned char gpu_dynamic_shared_[]; \
  T* const name = reinterpret_cast<T*>(gpu_dynamic_shared_)
#define GPU_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__), ::tessera::gpu::launch_error(#kernel))
#endif

namespace tessera::gpu {

// Lanes of a warp, the same for host and device code: 32 (CUDA), 64 (HIP: gfx9), either (emulator).
#if defined(TESSERA_GPU_CUDA)
GPU_HOST_DEVICE constexpr int warp_size() { return 32; }
#elif defined(TESSERA_GPU_HIP)
#if defined(__HIP_DEVICE_COMPILE__)
static_assert(__AMDGCN_WAVEFRONT_SIZE == 64, "built for gfx9: host and device code must agree about the warp's size");
#endif
GPU_HOST_DEVICE constexpr int warp_size() { return 64; }
#else
inline int warp_size() { return ::emulator::warp_size(); }
#endif

// The lane of this thread in its warp, and the warp in its block; warps run along threadIdx.x, then y, then z.
GPU_DEVICE int thread_in_block() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
GPU_DEVICE int lane() { return thread_in_block() % warp_size(); }
GPU_DEVICE int warp() { return thread_in_block() / warp_size(); }

// Shuffles are between the `width` (a power of 2) lanes of an aligned group, and all of them call it. Groups of one
// warp are independent. T has 4 or 8 bytes. For a lane outside the group, or above the block's last lane, the caller's
// own value is returned.
#if defined(TESSERA_GPU_CUDA)
GPU_DEVICE unsigned group_mask(int width) {
  return width == 32 ? 0xffffffffu : ((1u << width) - 1u) << (lane() & ~(width - 1));
}
template <class T>
GPU_DEVICE T shfl(T value, int source, int width = warp_size()) {
  return __shfl_sync(group_mask(width), value, source, width);
}
template <class T>
GPU_DEVICE T shfl_xor(T value, int lanes, int width = warp_size()) {
  return __shfl_xor_sync(group_mask(width), value, lanes, width);
}
template <class T>
GPU_DEVICE T shfl_down(T value, int lanes, int width = warp_size()) {
  return __shfl_down_sync(group_mask(width), value, lanes, width);
}
template <class T>
GPU_DEVICE T shfl_up(T value, int lanes, int width = warp_size()) {
  return __shfl_up_sync(group_mask(width), value, lanes, width);
}
// Bit i is lane i's predicate. All lanes of the warp call it.
GPU_DEVICE uint64_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }
// Makes memory writes of the warp's lanes visible to all of them. All lanes of the warp call it.
GPU_DEVICE void sync_warp() { __syncwarp(); }
GPU_DEVICE void sync_block() { __syncthreads(); }
#elif defined(TESSERA_GPU_HIP)
template <class T>
GPU_DEVICE T shfl(T value, int source, int width = warp_size()) {
  return __shfl(value, source, width);
}
template <class T>
GPU_DEVICE T shfl_xor(T value, int lanes, int width = warp_size()) {
  return __shfl_xor(value, lanes, width);
}
template <class T>
GPU_DEVICE T shfl_down(T value, int lanes, int width = warp_size()) {
  return __shfl_down(value, static_cast<unsigned>(lanes), width);
}
template <class T>
GPU_DEVICE T shfl_up(T value, int lanes, int width = warp_size()) {
  return __shfl_up(value, static_cast<unsigned>(lanes), width);
}
GPU_DEVICE uint64_t ballot(bool predicate) { return __ballot(predicate); }
GPU_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
GPU_DEVICE void sync_block() { __syncthreads(); }
#else
using ::emulator::ballot;
using ::emulator::shfl;
using ::emulator::shfl_down;
using ::emulator::shfl_up;
using ::emulator::shfl_xor;
using ::emulator::sync_block;
using ::emulator::sync_warp;
#endif

// Adds to memory of the device or of the block, and returns the previous value. It orders no other memory accesses. T:
// int32, uint32, int64, uint64, float, double.
template <class T>
GPU_DEVICE T atomic_add(T* address, T value) {
#if defined(TESSERA_GPU_EMULATOR)
  return ::emulator::atomic_add(address, value);
#else
  // The vendors have only one type of 64-bit integers.
  if constexpr (sizeof(T) == 8 && static_cast<T>(0.5) == T{0}) {
    using Wide = unsigned long long;
    return static_cast<T>(atomicAdd(reinterpret_cast<Wide*>(address), static_cast<Wide>(value)));
  } else {
    return atomicAdd(address, value);
  }
#endif
}

// Stores `desired` if the value is `expected`, and returns the previous value. T: int32, uint32, int64, uint64.
template <class T>
GPU_DEVICE T atomic_cas(T* address, T expected, T desired) {
#if defined(TESSERA_GPU_EMULATOR)
  return ::emulator::atomic_cas(address, expected, desired);
#else
  if constexpr (sizeof(T) == 8) {
    using Wide = unsigned long long;
    return static_cast<T>(
        atomicCAS(reinterpret_cast<Wide*>(address), static_cast<Wide>(expected), static_cast<Wide>(desired)));
  } else {
    return atomicCAS(address, expected, desired);
  }
#endif
}

// Keep the larger or the smaller value, respectively. T: int32, uint32.
template <class T>
GPU_DEVICE T atomic_max(T* address, T value) {
#if defined(TESSERA_GPU_EMULATOR)
  return ::emulator::atomic_max(address, value);
#else
  return atomicMax(address, value);
#endif
}
template <class T>
GPU_DEVICE T atomic_min(T* address, T value) {
#if defined(TESSERA_GPU_EMULATOR)
  return ::emulator::atomic_min(address, value);
#else
  return atomicMin(address, value);
#endif
}

// Read and write a word that other threads access concurrently. They order no other memory accesses. T: uint32, uint64.
template <class T>
GPU_DEVICE T atomic_load(const T* address) {
#if defined(TESSERA_GPU_CUDA)
  return *const_cast<const volatile T*>(address);
#else
  return __atomic_load_n(address, __ATOMIC_RELAXED);
#endif
}
template <class T>
GPU_DEVICE void atomic_store(T* address, T value) {
#if defined(TESSERA_GPU_CUDA)
  *const_cast<volatile T*>(address) = value;
#else
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
#endif
}

// Quotient and root, accurate to 2 units in the last place. They avoid the subroutines that CUDA calls for the last
// bit.
GPU_DEVICE float divide(float a, float b) {
#if defined(TESSERA_GPU_CUDA)
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#else
  return a / b;
#endif
}
GPU_DEVICE float square_root(float a) {
#if defined(TESSERA_GPU_CUDA)
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(a));
  return root;
#else
  return sqrtf(a);
#endif
}

// The number of set bits.
GPU_DEVICE int popcount(uint64_t bits) {
#if defined(TESSERA_GPU_EMULATOR)
  return __builtin_popcountll(bits);
#else
  return __popcll(bits);
#endif
}

// Earlier writes of this thread become visible to the device's other threads before its later ones.
GPU_DEVICE void fence_device() {
#if defined(TESSERA_GPU_EMULATOR)
  ::emulator::fence_device();
#else
  __threadfence();
#endif
}

// Copies kBytes, 8 or 16, from device memory to memory of the block, both aligned to kBytes, asynchronously if the
// device can. For this thread, the copies before a copies_end() are complete when copies_wait<N>() returns and at most
// N calls of copies_end() came after it.
template <int kBytes>
GPU_DEVICE void copy_to_block(void* to, const void* from) {
#if defined(TESSERA_GPU_CUDA)
  __pipeline_memcpy_async(to, from, kBytes);
#else
  __builtin_memcpy(to, from, kBytes);
#endif
}
GPU_DEVICE void copies_end() {
#if defined(TESSERA_GPU_CUDA)
  __pipeline_commit();
#endif
}
template <int N>
GPU_DEVICE void copies_wait() {
#if defined(TESSERA_GPU_CUDA)
  __pipeline_wait_prior(N);
#endif
}

// Conversions round to nearest, ties to even.
GPU_DEVICE float to_float(float value) { return value; }
GPU_DEVICE float to_float(BFloat16 value) { return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16); }
GPU_DEVICE float to_float(Half value) {
#if defined(TESSERA_GPU_CUDA)
  return __half2float(__builtin_bit_cast(__half, value));
#elif defined(TESSERA_GPU_HIP)
  return static_cast<float>(__builtin_bit_cast(_Float16, value.bits));
#else
  return sdk::half_to_float(value.bits);
#endif
}

// from_float<T>(x): T is float, Half or BFloat16.
template <class T>
GPU_DEVICE T from_float(float value);
template <>
GPU_DEVICE float from_float<float>(float value) {
  return value;
}
template <>
GPU_DEVICE BFloat16 from_float<BFloat16>(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
GPU_DEVICE Half from_float<Half>(float value) {
#if defined(TESSERA_GPU_CUDA)
  return __builtin_bit_cast(Half, __float2half_rn(value));
#elif defined(TESSERA_GPU_HIP)
  return {__builtin_bit_cast(uint16_t, static_cast<_Float16>(value))};
#else
  return {sdk::float_to_half(value)};
#endif
}

}  // namespace tessera::gpu

#endif  // GPU_DEVICE_CODE
