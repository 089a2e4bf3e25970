#include "dense/loss.h"

#include "gpu/columns.h"

namespace tessera::gpu {
namespace {

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) binary_cross_entropy_kernel(tsr_binary_cross_entropy loss) {
  GPU_SHARED(double, sums, kBlockThreads);
  const auto scale = static_cast<float>(loss.scale);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < loss.n; i += kBlockThreads) {
    const float x = loss.logits[i];
    const float y = loss.labels[i];
    const float e = expf(-fabsf(x));
    sum += (x > 0 ? x : 0.0f) - x * y + log1pf(e);
    if (loss.grad != nullptr) loss.grad[i] = scale * (divide(x >= 0 ? 1.0f : e, 1 + e) - y);
  }
  sums[threadIdx.x] = sum;
  for (unsigned half = kBlockThreads / 2; half > 0; half /= 2) {
    sync_block();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss.sum = sums[0];
}

}  // namespace

void binary_cross_entropy(const tsr_binary_cross_entropy& loss, Stream stream) {
  GPU_LAUNCH(binary_cross_entropy_kernel, 1, dim3(kBlockThreads), 0, stream, loss);
}

}  // namespace tessera::gpu
