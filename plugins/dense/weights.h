// The weight matrices of a layer, and their products with blocks of a batch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bf16_products.h"
#include "int8_products.h"
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

// c [m, n] = alpha * a b + beta * c, row-major. 'T' means that a matrix is given transposed. `lda`, `ldb` and `ldc` are
// the floats from one given row to the next. Call multiply() inside a OneThread. [any-thread]
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
// Makes the first product, which needs memory for generated code. A layer that multiplies without Weights calls it in
// its constructor.
void prepare_products();

// Gradients of weights with this many multiply-adds are worth several threads.
constexpr int64_t kGradientsWorthThreads = 2 * kProductsWorthAThread;

// Matrices [out, in], in the order in which they were added. Work on whole matrices is divided into tiles of their
// rows. Results do not depend on the number of threads: blocks and tiles depend on it only where that changes no sum.
//
// With Precision::kBfloat16, the inputs of all products are rounded to bfloat16, except for narrow matrices. With kInt8
// they are rounded to 8 bits: such weights have no gradients, and must not change as long as their addresses stay.
class Weights {
 public:
  // `host` must outlive it.
  explicit Weights(tessera::sdk::Host host, Precision precision = Precision::kFloat32);
  // Adds a matrix [parts * out, in] whose parts are given one by one, and multiplied together.
  void add(int64_t in, int64_t out, int64_t parts = 1);

  // The number of samples that a thread processes at once, enough to be worth a thread.
  int64_t block(int64_t batch) const;
  int64_t size() const { return size_; }  // floats of all matrices
  // True if the inputs of products with matrix `i` are rounded. A sample's values then do not depend on the other
  // samples.
  bool rounds(size_t i) const { return to_bf16(i) || to_int8(i); }

  // Call before multiply() and multiply_back() whenever weights may have changed. `w` has a pointer per part.
  void prepare(const Loops& loops, std::span<const float* const> w);
  // Does the same, only for matrices that are rounded.
  void prepare_rounded(const Loops& loops, std::span<const float* const> w);
  // y [rows, out] = x [rows, in] times matrix `i` transposed; strides are the floats from one row to the next. Call
  // inside a OneThread. [any-thread]
  void multiply(const Loops& loops, size_t i, int64_t rows, const float* x, int64_t x_stride, float* y,
                int64_t y_stride) const;
  // dx [rows, in] = dy [rows, out] times matrix `i`, or is added to it. Call inside a OneThread. [any-thread]
  void multiply_back(const Loops& loops, size_t i, int64_t rows, const float* dy, int64_t dy_stride, float* dx,
                     int64_t dx_stride, bool add) const;

  struct Gradient {
    const float* x;  // [rows, in]
    int64_t x_stride;
    const float* dy;  // [rows, out]
    int64_t dy_stride;
    float* w;  // [out, in]: dy^T x is added to it
    float* b;  // [out]: the sums of dy over the rows are added to it; NULL without a bias
  };
  // Backward takes a batch in parts, whose x and dy are still in the caches when gradients are added. Returns the rows
  // of the next part if `left` remain. Parts end where oneDNN's own sums do, so that the results are those of one part.
  int64_t part(int64_t left) const;
  // Adds the gradients of a part in three steps: start_gradients(); take_rows() for each block of rows as soon as its
  // x and dy are computed, while they are in the caches; add_gradients(). `all` has an entry per part. Blocks begin
  // at multiples of 64 rows. take_rows(): [any-thread]
  void start_gradients(int64_t batch);
  void take_rows(const Loops& loops, int64_t batch, int64_t begin, int64_t end, std::span<const Gradient> all) const;
  void add_gradients(const Loops& loops, int64_t batch, std::span<const Gradient> all) const;
  // Does one of the tiles() parts of add_gradients(). [any-thread]
  void add_tile(const Loops& loops, int64_t batch, std::span<const Gradient> all, int64_t tile) const;
  int64_t tiles() const { return static_cast<int64_t>(tiles_.size()); }

 private:
  struct Shape {
    int64_t in, out, parts;
    size_t first;  // index of the first part
    int64_t of_part() const { return out / parts; }
    // Rounding takes as long as it saves in narrower products.
    bool rounds() const { return in >= 32 && of_part() >= 32; }
  };
  struct Tile {
    size_t matrix;
    int64_t part, first, last;  // rows [first, last) of the part
    int64_t thread;             // the one that begins with it
  };
  bool to_bf16(size_t i) const { return bf16_ && shapes_[i].rounds(); }
  bool to_int8(size_t i) const { return int8_ && Int8Products::rounds(shapes_[i].in, shapes_[i].of_part()); }
  void prepare(const Loops& loops, std::span<const float* const> w, bool only_rounded);
  void pack_int8(std::span<const float* const> w);
  static void round_tiles(const Loops& loops, const Gradient& g, int64_t out, int64_t rows, int64_t first,
                          int64_t count, Bf16* to);

  tessera::sdk::Host host_;
  // True if a product's bits do not depend on how its rows are divided, except for a single row. With AVX2 they depend
  // on it, so the sizes of blocks and tiles are fixed there.
  bool free_;
  std::unique_ptr<Bf16Products> bf16_;
  std::unique_ptr<Int8Products> int8_;  // both NULL: float32
  std::vector<const float*> packed_;    // addresses of the parts that int8_ has packed
  std::vector<Shape> shapes_;
  size_t parts_ = 0;              // of all matrices
  std::vector<int64_t> offsets_;  // in transposed_, stacked_ and halves_
  std::vector<Tile> tiles_;
  int64_t size_ = 0;             // floats of all matrices
  int64_t values_ = 0;           // for one sample, the inputs and outputs of all products
  Floats transposed_, stacked_;  // stacked_: only matrices of several parts
  Halves halves_;                // the matrices in bfloat16, not transposed
  Halves rounded_;               // x and dy of all matrices, with rows of zeros up to whole units
  std::vector<int64_t> begins_;  // offsets of each matrix's values in rounded_
  std::vector<const float*> given_;
};

// Marks the weights [out, in] that products round to 8 bits, for a layer that gives its matrices to Weights.
void mark_int8(Precision precision, std::vector<tessera::sdk::Parameter>& parameters);

}  // namespace tessera_dense
