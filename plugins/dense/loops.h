// The loops between the matrix products, compiled once per instruction set (see loops.inc).
#pragma once

#include <stdint.h>

#include "row_loops.h"

namespace tessera_dense {

// Samples [first, first + count) of a batch of dot interactions. A sample has n = features + 1 vectors of `dim` floats:
// the dense one, then the pooled ones.
struct Interaction {
  int64_t first, count;
  int64_t features, dim;
  const float* dense;   // [batch, dim]
  const float* pooled;  // [batch, features * dim]
  float* scratch;       // interaction_scratch(features, dim) floats, aligned to 64 bytes; one per concurrent call
};

// features + 1, rounded up to a multiple of 16
inline int64_t interaction_padded(int64_t features) { return (features + 16) / 16 * 16; }
inline int64_t interaction_pairs(int64_t features) { return features * (features + 1) / 2; }
// True if forward works on several samples together, which requires that vectors and products of 16 samples stay in the
// L1 cache.
inline bool interacts_in_groups(int64_t features, int64_t dim) {
  return (features + 1) * dim + interaction_pairs(features) <= 512;
}
// The number of floats of Interaction::scratch. Forward needs the transposed vectors and the products of all pairs, for
// one sample or for 16; backward needs the matrix of the products' gradients.
inline int64_t interaction_scratch(int64_t features, int64_t dim) {
  const int64_t padded = interaction_padded(features), each = padded * (dim + padded + 8);
  const int64_t together = 16 * ((features + 1) * dim + interaction_pairs(features));
  return interacts_in_groups(features, dim) && together > each ? together : each;
}

// Rows [first, first + count) of y = x W^T + b. x [batch, in], w [out, in], b [out], y [batch, out]. Strides are the
// floats from one row to the next.
struct Affine {
  int64_t first, count;
  int64_t in, out;
  const float* x;
  int64_t x_stride;
  const float* w;
  const float* b;
  float* y;
  int64_t y_stride;
  bool relu;  // y < 0 becomes 0
};

// The gradients of a cross layer for `n` values: dy = dnext * x0, and dx0 = dnext * y.
struct CrossBack {
  int64_t n;
  const float* dnext;
  const float* x0;
  const float* y;
  float* dy;
  float* dx0;
  float* copy;  // receives a copy of dnext; if NULL, dnext * y is added to dx0
};

struct Loops {
  // Writes output [batch, dim + n (n - 1) / 2]: the dense vector, then dot(i, j) for i < j, row by row.
  void (*interact)(const Interaction& args, float* output);
  // A gradient that is not wanted is NULL.
  void (*interact_backward)(const Interaction& args, const float* grad_output, float* grad_dense, float* grad_pooled);
  // For matrices of `rows` x `columns`: y += bias; with relu, negative values become 0 and NaN stays.
  void (*add_bias)(int64_t rows, int64_t columns, const float* bias, bool relu, float* y);
  // dz = y <= 0 ? 0 : dy. dz may be dy.
  void (*mask)(int64_t n, const float* y, const float* dy, float* dz);
  // Adds the sums of columns [first, last) of a matrix of `rows` x `columns` to `sums`.
  void (*sum_rows)(int64_t rows, int64_t columns, int64_t first, int64_t last, const float* from, float* sums);
  // to [columns, rows] = the transpose of from [rows, columns], only for rows [first, last) of `from`.
  void (*transpose)(int64_t rows, int64_t columns, int64_t first, int64_t last, const float* from, float* to);
  // For a cross layer, matrices of `rows` x `columns`: y += bias, next = x0 * y + x.
  void (*cross)(int64_t rows, int64_t columns, const float* bias, const float* x0, const float* x, float* y,
                float* next);
  // next = x0 * y + x
  void (*cross_again)(int64_t n, const float* x0, const float* x, const float* y, float* next);
  void (*cross_back)(const CrossBack& args);
  // out += a
  void (*add)(int64_t n, const float* a, float* out);
  // A sample's values depend neither on the other samples of the batch nor on their number.
  void (*affine)(const Affine& args);
  // Rounds to the nearest bfloat16, ties to even. NaN stays NaN.
  void (*to_bf16)(int64_t n, const float* from, uint16_t* to);
  // Does the same for two rows at once: to[2 i] = first[i], to[2 i + 1] = second[i].
  void (*to_bf16_pairs)(int64_t n, const float* first, const float* second, uint16_t* to);
  const RowLoops* of_rows;
};

namespace portable {
extern const Loops kLoops;
}
#if TESSERA_X86
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}
#endif

// The best loops for this processor, or those that TESSERA_ISA names.
const Loops& choose_loops();

}  // namespace tessera_dense
