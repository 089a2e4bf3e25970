// Elementwise steps of the cross network, and the pairwise dot products of a DLRM with their gradients.
#pragma once

#include "gpu/gpu.h"

namespace tessera::gpu {

// out = a * b + c, or if c is NULL, a * b. `out` may be `c`.
void multiply_add(int64_t n, const float* a, const float* b, const float* c, float* out, Stream stream);
// out += a
void add(int64_t n, const float* a, float* out, Stream stream);

// A sample has features + 1 vectors of `dim` floats: the dense one, then the pooled ones.
struct Interaction {
  int64_t batch, features, dim;
  const float* dense;   // [batch, dim]
  const float* pooled;  // [batch, features * dim]
};
// Writes output [batch, dim + n (n - 1) / 2] with n = features + 1: the dense vector, then dot(i, j) for i < j, row by
// row.
void interact(const Interaction& args, float* output, Stream stream);
// A gradient that is not wanted is NULL.
void interact_backward(const Interaction& args, const float* grad_output, float* grad_dense, float* grad_pooled,
                       Stream stream);

}  // namespace tessera::gpu
