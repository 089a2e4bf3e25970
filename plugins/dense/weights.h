// The weight matrices of a layer, and their products with blocks of a batch.
#pragma once

#include <span>
#include <vector>

#include "loops.h"
#include "support.h"

namespace tessera_dense {

// oneDNN runs on libgomp and would start a team of threads for each product. In this scope, the calling thread computes
// its products alone, because the host decides what runs in parallel.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Products of rows of a batch; call inside a OneThread. [any-thread] y [rows, out] = x [rows, in] times transposed [in,
// out].
void multiply(int64_t rows, int64_t in, int64_t out, const float* x, const float* transposed, float* y);
// grad_x [rows, in] = grad_y [rows, out] times w [out, in].
void multiply_back(int64_t rows, int64_t in, int64_t out, const float* grad_y, const float* w, float* grad_x);

// c [m, n] = alpha * a b + beta * c, row-major; 'T' means that the matrix is given transposed. `lda` and so on are the
// floats from one given row to the next. Call inside a OneThread. [any-thread]
struct Product {
  char trans_a, trans_b;
  int64_t m, n, k;
  float alpha;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float beta;
  float* c;
  int64_t ldc;
};
void multiply(const Product& p);
// Makes the first product, which needs memory for generated code. Layers that multiply without Weights call it when
// they are made.
void prepare_products();

// Matrices [out, in], in the order in which they were added. Work on whole matrices is done here, in tiles of their
// rows. Tiles and blocks depend only on shapes, so that results do not depend on threads.
class Weights {
 public:
  void add(int64_t in, int64_t out);

  // Samples that a thread processes at once: enough to be worth a thread.
  int64_t block() const;

  // Transposes all matrices for multiply(). `w` has a pointer per matrix.
  void transpose(tessera::sdk::Host host, const Loops& loops, std::span<const float* const> w);
  const float* transposed(size_t i) const { return transposed_.data() + offsets_[i]; }

  struct Gradient {
    const float* x;   // [batch, in]
    const float* dy;  // [batch, out]
    float* w;         // [out, in]: dy^T x is added to it
    float* b;         // [out]: the sums of dy over the batch are added to it; NULL without a bias
  };
  // `all` has an entry per matrix.
  void add_gradients(tessera::sdk::Host host, const Loops& loops, int64_t batch, std::span<const Gradient> all) const;

 private:
  struct Shape {
    int64_t in, out;
  };
  struct Tile {
    size_t matrix;
    int64_t first, last;  // rows
  };
  std::vector<Shape> shapes_;
  std::vector<int64_t> offsets_;  // in transposed_
  std::vector<Tile> tiles_;
  int64_t size_ = 0;  // floats of all matrices
  Floats transposed_;
};

}  // namespace tessera_dense
