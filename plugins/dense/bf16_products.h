// Matrix products whose inputs are rounded to bfloat16. Sums are made in float32, by oneDNN's matmul.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "loops.h"
#include "support.h"

namespace tessera_dense {

enum class Precision { kFloat32, kBfloat16 };

// Reads the option "precision". Failure(TSR_UNAVAILABLE): it is "bfloat16", and the processor multiplies none; the
// sentence names what is missing.
Precision read_precision(tessera::sdk::Options& options);

// The upper half of a float32.
using Bf16 = uint16_t;

// Values from the host that grow and never shrink.
class Halves {
 public:
  Bf16* at_least(tessera::sdk::Host host, int64_t count) {
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(Bf16);
    if (buffer_.bytes() < bytes) buffer_ = tessera::sdk::Buffer(host, bytes);
    return data();
  }
  Bf16* data() const { return buffer_.data<Bf16>(); }

 private:
  tessera::sdk::Buffer buffer_;
};

// Primitives are made at the first product of a shape and kept. Callers cut rows and sums into a few sizes, so that
// batches of any size need few of them. Call inside a OneThread. [any-thread]
class Bf16Products {
 public:
  explicit Bf16Products(tessera::sdk::Host host);
  ~Bf16Products();

  // c [m, n] = a b, or is added to, as in weights.h's Product.
  struct Shape {
    bool trans_a, trans_b, add;
    int64_t m, n, k, lda, ldb, ldc;
    auto operator<=>(const Shape&) const = default;
  };
  void multiply(const Shape& shape, const Bf16* a, const Bf16* b, float* c);

  // `rows` rows of `x` are rounded and multiplied by b; a row's result does not depend on the others. `shape` has the
  // rest: its m is not read.
  void multiply_rows(const Loops& loops, Shape shape, int64_t rows, const float* x, const Bf16* b, float* c);

  // c [m, n] += transposed a [k, m] times b [k, n], where k is a multiple of kSumUnit.
  void add_products(Shape shape, const Bf16* a, const Bf16* b, float* c);
  static constexpr int64_t kSumUnit = 64;
  // k rounded up to whole units; the rows beyond k are zeros.
  static int64_t padded(int64_t k) { return (k + kSumUnit - 1) / kSumUnit * kSumUnit; }

 private:
  struct Engine;  // oneDNN's, the same for all primitives and streams
  struct Primitive;
  struct Memory;  // of one call at a time
  class Borrowed;
  const Primitive& primitive(const Shape& shape);
  void run(const Primitive& primitive, const Bf16* a, const Bf16* b, float* c, Memory& memory) const;

  tessera::sdk::Host host_;
  std::unique_ptr<Engine> engine_;
  std::shared_mutex lock_;  // of primitives_
  std::map<Shape, std::unique_ptr<Primitive>> primitives_;
  std::mutex memory_lock_;
  std::vector<std::unique_ptr<Memory>> free_memory_;
};

}  // namespace tessera_dense
