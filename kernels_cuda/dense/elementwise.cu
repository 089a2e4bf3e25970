#include "dense/elementwise.h"

#include <algorithm>

#include "gpu/columns.h"

namespace tessera::gpu {
namespace {

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads)
    multiply_add_kernel(int64_t n, const float* a, const float* b, const float* c, float* out) {
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kBlockThreads) {
    const float product = b == nullptr ? a[i] : a[i] * b[i];
    out[i] = c == nullptr ? product : product + c[i];
  }
}

// If `b` is NULL, it counts as ones.
void launch_multiply_add(int64_t n, const float* a, const float* b, const float* c, float* out, Stream stream) {
  if (n == 0) return;
  const int64_t blocks = std::min<int64_t>((n + kBlockThreads - 1) / kBlockThreads, 2048);
  GPU_LAUNCH(multiply_add_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream, n, a, b, c, out);
}

GPU_DEVICE const float* vector_of(const Interaction& args, int64_t sample, int64_t i) {
  return i == 0 ? args.dense + sample * args.dim : args.pooled + (sample * args.features + i - 1) * args.dim;
}

// The index of row i's first product among those of a sample.
GPU_DEVICE int64_t first_product(int64_t i, int64_t n) { return i * (n - 1) - i * (i - 1) / 2; }

// The row of product `p`, i < j.
GPU_DEVICE int64_t row_of_product(int64_t p, int64_t n) {
  const auto edge = static_cast<float>(2 * n - 1);
  const float root = edge * edge - 8 * static_cast<float>(p);
  auto i = static_cast<int64_t>((edge - sqrtf(root > 0 ? root : 0)) / 2);  // nearly exact
  i = i < 0 ? 0 : i > n - 2 ? n - 2 : i;
  while (i > 0 && first_product(i, n) > p) --i;
  while (i < n - 2 && first_product(i + 1, n) <= p) ++i;
  return i;
}

// Each block computes a sample, and each group of lanes a product.
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) interact_kernel(Interaction args, int32_t lanes, float* output) {
  const int64_t sample = blockIdx.x;
  const int64_t n = args.features + 1;
  const int64_t products = n * (n - 1) / 2;
  float* out = output + sample * (args.dim + products);
  for (int64_t d = threadIdx.x; d < args.dim; d += kBlockThreads) out[d] = vector_of(args, sample, 0)[d];
  const int64_t groups = kBlockThreads / lanes;
  const int64_t group_lane = threadIdx.x % static_cast<unsigned>(lanes);
  for (int64_t base = 0; base < products; base += groups) {  // the same for all threads, because they sum together
    const int64_t p = base + threadIdx.x / static_cast<unsigned>(lanes);
    float sum = 0;
    if (p < products) {
      const int64_t i = row_of_product(p, n);
      const float* a = vector_of(args, sample, i);
      const float* b = vector_of(args, sample, i + 1 + p - first_product(i, n));
      for (int64_t d = group_lane; d < args.dim; d += lanes) sum += a[d] * b[d];
    }
    sum = group_sum(sum, lanes);
    if (p < products && group_lane == 0) out[args.dim + p] = sum;
  }
}

// Each block computes a sample, and each thread an element of its gradients: the sum over j of G[i, j] * vector j.
GPU_GLOBAL void GPU_LAUNCH_BOUNDS_OF(kBlockThreads, 4)
    interact_backward_kernel(Interaction args, const float* grad_output, float* grad_dense, float* grad_pooled) {
  const int64_t sample = blockIdx.x;
  const int64_t n = args.features + 1;
  const float* grad = grad_output + sample * (args.dim + n * (n - 1) / 2);
  const float* of_product = grad + args.dim;
  const int64_t begin = grad_dense == nullptr ? args.dim : 0;
  const int64_t end = grad_pooled == nullptr ? args.dim : n * args.dim;
  for (int64_t e = begin + threadIdx.x; e < end; e += kBlockThreads) {
    const int64_t i = e / args.dim;
    const int64_t d = e % args.dim;
    float sum = i == 0 ? grad[d] : 0.0f;
    for (int64_t j = 0; j < i; ++j) sum += of_product[first_product(j, n) + i - j - 1] * vector_of(args, sample, j)[d];
    for (int64_t j = i + 1; j < n; ++j)
      sum += of_product[first_product(i, n) + j - i - 1] * vector_of(args, sample, j)[d];
    if (i == 0) {
      grad_dense[sample * args.dim + d] = sum;
    } else {
      grad_pooled[(sample * args.features + i - 1) * args.dim + d] = sum;
    }
  }
}

}  // namespace

void multiply_add(int64_t n, const float* a, const float* b, const float* c, float* out, Stream stream) {
  launch_multiply_add(n, a, b, c, out, stream);
}

void add(int64_t n, const float* a, float* out, Stream stream) { launch_multiply_add(n, a, nullptr, out, out, stream); }

void interact(const Interaction& args, float* output, Stream stream) {
  if (args.batch == 0) return;
  GPU_LAUNCH(interact_kernel, dim3(static_cast<unsigned>(args.batch)), dim3(kBlockThreads), 0, stream, args,
             group_lanes(static_cast<int32_t>(std::min<int64_t>(args.dim, 1024))), output);
}

void interact_backward(const Interaction& args, const float* grad_output, float* grad_dense, float* grad_pooled,
                       Stream stream) {
  if (args.batch == 0 || (grad_dense == nullptr && grad_pooled == nullptr)) return;
  GPU_LAUNCH(interact_backward_kernel, dim3(static_cast<unsigned>(args.batch)), dim3(kBlockThreads), 0, stream, args,
             grad_output, grad_dense, grad_pooled);
}

}  // namespace tessera::gpu
