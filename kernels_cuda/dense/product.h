// Matrix products and sums over rows, from which linear layers are built. The order of sums depends only on the sizes,
// so results have the same bits in every run.
#pragma once

#include "gpu/gpu.h"

namespace tessera::gpu {

// c [m, n] = a b, all row-major.
struct Product {
  int64_t m, n, k;
  const float* a;  // [m, k]
  const float* b;  // [k, n]
  float* c;
  bool a_transposed = false;    // a is stored as [k, m]
  bool b_transposed = false;    // b is stored as [n, k]
  bool add = false;             // c += a b; without bias and relu
  const float* bias = nullptr;  // [n], added to every row
  bool relu = false;            // negative values become 0; NaN stays
};

// The floats of scratch that a product needs, because a long sum into a small matrix is divided into pieces.
int64_t product_scratch(const Product& product);
void multiply(const Product& product, float* scratch, Stream stream);

// For matrices [rows, columns]: dz = y <= 0 ? 0 : dy. The sums of dz over the rows are added to `sums`. If y is NULL,
// dz is not written, and dy is summed.
struct MaskAndSum {
  int64_t rows, columns;
  const float* y;
  const float* dy;
  float* dz;
  float* sums;
};
int64_t mask_scratch(const MaskAndSum& mask);
void mask_and_sum(const MaskAndSum& mask, float* scratch, Stream stream);

}  // namespace tessera::gpu
