// Loops over elements and rows of a batch. row_loops.inc compiles them once for each instruction set.
#pragma once

#include <stdint.h>

namespace tessera_dense {

enum class Activation : int32_t {
  kNone,
  kRelu,
  kLeakyRelu,
  kSigmoid,
  kTanh,
  kGelu,
  kSilu,
  kElu,
  kSelu,
  kSoftplus,
  kMish
};

struct RowLoops {
  // y = f(x). `slope` is leaky_relu's slope below 0. y may be x.
  void (*activate)(Activation f, int64_t n, float slope, const float* x, float* y);
  // dx = dy * f'(x). dx may be dy.
  void (*activate_back)(Activation f, int64_t n, float slope, const float* x, const float* dy, float* dx);
  // y = c * silu(x)
  void (*silu)(int64_t n, float c, const float* x, float* y);
  // y = c * silu(x), and x becomes silu'(x).
  void (*silu_and_slope)(int64_t n, float c, float* x, float* y);
  // y = (x - mean) * inverse, row by row, with inverse = 1 / sqrt(variance + eps). Also stores each row's `inverse`.
  void (*standardise)(int64_t rows, int64_t width, float eps, const float* x, float* y, float* inverse);
  // dx = inverse * (g - mean(g) - y * mean(g * y)), row by row.
  void (*standardise_back)(int64_t rows, int64_t width, const float* y, const float* inverse, const float* g,
                           float* dx);
  // y = exp(x - max) / sum of exp(x - max), row by row.
  void (*softmax)(int64_t rows, int64_t width, const float* x, float* y);
  // Returns the largest x, ignoring NaN; -infinity if there is none.
  float (*largest)(int64_t n, const float* x);
  // Returns the sum of exp(x - shift).
  float (*sum_exp)(int64_t n, const float* x, float shift);
  // y = scale * exp(x - shift). y may be x.
  void (*scaled_exp)(int64_t n, const float* x, float shift, float scale, float* y);
  // dx = y * (dy - dot(dy, y)), row by row.
  void (*softmax_back)(int64_t rows, int64_t width, const float* y, const float* dy, float* dx);
  // y = x * weight + bias, for each row.
  void (*scale_shift)(int64_t rows, int64_t width, const float* x, const float* weight, const float* bias, float* y);
  // The gradients of scale_shift in columns [first, last): adds the sums over the rows of dy * x to dweight, and of dy
  // to dbias.
  void (*add_scale_shift)(int64_t rows, int64_t width, int64_t first, int64_t last, const float* x, const float* dy,
                          float* dweight, float* dbias);
  // Returns the sum of a * b.
  float (*dot)(int64_t n, const float* a, const float* b);
  // y [rows, width] = the sum over i of weights[row, i] * x[row, i], with x [rows, count, width].
  void (*mix)(int64_t rows, int64_t count, int64_t width, const float* weights, const float* x, float* y);
  // The gradients of mix: dweights[row, i] = dot(dy[row], x[row, i]), and unless dx is NULL, dx[row, i] = weights[row,
  // i] * dy[row].
  void (*mix_back)(int64_t rows, int64_t count, int64_t width, const float* weights, const float* x, const float* dy,
                   float* dweights, float* dx);
  // out += scale * a
  void (*add_scaled)(int64_t n, float scale, const float* a, float* out);
  // y = scale * a
  void (*scale)(int64_t n, float scale, const float* a, float* y);
  // y = 0 if the element's random number, a function of keys and its index, is below `least`; otherwise y = scale * x.
  // y may be x.
  void (*drop)(int64_t n, const uint32_t* keys, uint32_t least, float scale, const float* x, float* y);
  // y = 0 + scale * a + scale * b. There is no last term if b is NULL.
  void (*scale_both)(int64_t n, float scale, const float* a, const float* b, float* y);
  // Replaces gate by sigmoid(gate); y = x * gate * c.
  void (*gate)(int64_t n, const float* x, float c, float* gate, float* y);
  // The gradients of gate(). `gate` has the sigmoids, and dgate is the gradient before the sigmoid. dx may be NULL.
  void (*gate_back)(int64_t n, const float* x, const float* gate, const float* dy, float c, float* dgate, float* dx);
  // y = a * b * c; `c` is one number.
  void (*multiply)(int64_t n, const float* a, const float* b, float c, float* y);
  // dx = dy * (x < 0 ? slope : 1), unless dx is NULL; returns the gradient of the slope, the sum of dy * x over x < 0.
  double (*leaky_back)(int64_t n, float slope, const float* x, const float* dy, float* dx);
  // out [4 * width] = q, k, q - k, q * k.
  void (*compare)(int64_t width, const float* q, const float* k, float* out);
  // Adds the gradients of compare, from dout [4 * width], to dq and dk, unless they are NULL.
  void (*compare_back)(int64_t width, const float* q, const float* k, const float* dout, float* dq, float* dk);
  // Returns the sum of the dot products of all pairs among `count` vectors of `dim` values. `scratch`: 2 * dim floats.
  float (*pairs)(int64_t count, int64_t dim, const float* x, float* scratch);
  // dx [count, dim] = g * (the sum of all other vectors). `scratch`: dim floats.
  void (*pairs_back)(int64_t count, int64_t dim, float g, const float* x, float* dx, float* scratch);
};

}  // namespace tessera_dense
