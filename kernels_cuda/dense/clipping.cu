#include "dense/clipping.h"

#include <algorithm>
#include <cmath>

#include "gpu/columns.h"

namespace tessera::gpu {
namespace {

constexpr int64_t kMostPartials = TSR_CLIP_DOUBLES - 1;  // partial results of the norm: one per block
static_assert(kMostPartials <= kBlockThreads, "one block adds them up");

// The gradients of a launch, as its argument.
struct GradientBatch {
  tsr_gradient gradients[kMostGradients];
  uint32_t count;
};
static_assert(sizeof(GradientBatch) <= 4096 - 64, "arguments of a launch");

// These define norms: the terms, how they are joined, and the final value.
struct EuclideanNorm {
  double p;
  GPU_DEVICE double term(float v) const { return static_cast<double>(v) * v; }
  GPU_DEVICE double join(double a, double b) const { return a + b; }
  GPU_DEVICE double finish(double total) const { return sqrt(total); }
};
struct LargestNorm {
  double p;
  GPU_DEVICE double term(float v) const { return fabsf(v); }
  GPU_DEVICE double join(double a, double b) const { return a > b || a != a ? a : b; }
  GPU_DEVICE double finish(double total) const { return total; }
};
struct PowerNorm {
  double p;
  GPU_DEVICE double term(float v) const { return pow(fabs(static_cast<double>(v)), p); }
  GPU_DEVICE double join(double a, double b) const { return a + b; }
  GPU_DEVICE double finish(double total) const { return pow(total, 1 / p); }
};

// Joins all threads' values, in thread 0.
template <class Norm>
GPU_DEVICE double join_block(const Norm& norm, double value, double* shared) {
  shared[threadIdx.x] = value;
  for (unsigned half = kBlockThreads / 2; half > 0; half /= 2) {
    sync_block();
    if (threadIdx.x < half) shared[threadIdx.x] = norm.join(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  return shared[threadIdx.x];  // only valid in thread 0; elsewhere another thread may be writing it
}

// partials[block] covers the gradients of this batch and, unless it is the first, of earlier batches.
template <class Norm>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads)
    norm_partials_kernel(GradientBatch batch, Norm norm, bool first, double* partials) {
  GPU_SHARED(double, shared, kBlockThreads);
  double sum = 0;
  for (uint32_t g = 0; g < batch.count; ++g) {
    const tsr_gradient& gradient = batch.gradients[g];
    for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < gradient.count;
         i += int64_t{gridDim.x} * kBlockThreads)
      sum = norm.join(sum, norm.term(gradient.values[i]));
  }
  const double total = join_block(norm, sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = first ? total : norm.join(partials[blockIdx.x], total);
}

template <class Norm>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) norm_kernel(Norm norm, int64_t count, double* out) {
  GPU_SHARED(double, shared, kBlockThreads);
  const double total = join_block(norm, threadIdx.x < count ? out[1 + threadIdx.x] : 0.0, shared);
  if (threadIdx.x == 0) out[0] = norm.finish(total);
}

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads)
    clip_by_norm_kernel(GradientBatch batch, double max_gradient, const double* norm) {
  const double coefficient = max_gradient / (*norm + 1e-6);
  if (coefficient >= 1) return;
  const auto factor = static_cast<float>(coefficient);
  const tsr_gradient& gradient = batch.gradients[blockIdx.y];
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < gradient.count;
       i += int64_t{gridDim.x} * kBlockThreads)
    gradient.values[i] *= factor;
}

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) clip_by_value_kernel(GradientBatch batch, float limit) {
  const tsr_gradient& gradient = batch.gradients[blockIdx.y];
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < gradient.count;
       i += int64_t{gridDim.x} * kBlockThreads) {
    const float v = gradient.values[i];
    gradient.values[i] = v < -limit ? -limit : v > limit ? limit : v;
  }
}

// Calls body(batch, first) at least once; `first` is the number of the batch's first gradient.
template <class Body>
void for_each_batch(const tsr_clipping& clipping, const Body& body) {
  uint32_t next = 0;
  do {
    GradientBatch batch{};
    const uint32_t first = next;
    batch.count = std::min(clipping.num_gradients - next, kMostGradients);
    std::copy_n(clipping.gradients + next, batch.count, batch.gradients);
    next += batch.count;
    body(batch, first);
  } while (next < clipping.num_gradients);
}

template <class Norm>
void launch_norm(const tsr_clipping& clipping, const Norm& norm, int64_t blocks, Stream stream) {
  for_each_batch(clipping, [&](const GradientBatch& batch, uint32_t first) {
    GPU_LAUNCH(norm_partials_kernel<Norm>, static_cast<unsigned>(blocks), dim3(kBlockThreads), 0, stream, batch, norm,
               first == 0, clipping.norm + 1);
  });
  GPU_LAUNCH(norm_kernel<Norm>, 1, dim3(kBlockThreads), 0, stream, norm, blocks, clipping.norm);
}

}  // namespace

void clip_gradients(const tsr_clipping& clipping, Stream stream) {
  if (clipping.mode != TSR_CLIP_NONE && clipping.mode != TSR_CLIP_BY_NORM && clipping.mode != TSR_CLIP_BY_VALUE)
    sdk::fail(TSR_UNIMPLEMENTED, "gradients: there is no clipping ", clipping.mode, " on " GPU_VENDOR " devices");
  int64_t most = 0;
  for (uint32_t g = 0; g < clipping.num_gradients; ++g) most = std::max(most, clipping.gradients[g].count);
  const int64_t blocks = std::clamp<int64_t>((most + kBlockThreads - 1) / kBlockThreads, 1, kMostPartials);
  const double p = clipping.norm_type;
  if (clipping.norm == nullptr) {
    if (clipping.mode != TSR_CLIP_BY_VALUE) sdk::fail(TSR_INVALID_ARGUMENT, "the norm of gradients needs a place");
  } else if (std::isinf(p)) {
    launch_norm(clipping, LargestNorm{p}, blocks, stream);
  } else if (p == 2) {
    launch_norm(clipping, EuclideanNorm{p}, blocks, stream);
  } else {
    launch_norm(clipping, PowerNorm{p}, blocks, stream);
  }
  if (clipping.mode == TSR_CLIP_NONE || most == 0) return;
  for_each_batch(clipping, [&](const GradientBatch& batch, uint32_t) {
    const dim3 grid(static_cast<unsigned>(blocks), batch.count);
    if (clipping.mode == TSR_CLIP_BY_NORM)
      GPU_LAUNCH(clip_by_norm_kernel, grid, dim3(kBlockThreads), 0, stream, batch, clipping.max_gradient,
                 clipping.norm);
    else
      GPU_LAUNCH(clip_by_value_kernel, grid, dim3(kBlockThreads), 0, stream, batch,
                 static_cast<float>(clipping.max_gradient));
  });
}

}  // namespace tessera::gpu
