// Matrix products whose inputs are rounded to bfloat16. oneDNN's matmul sums them in float32.
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

enum class Precision { kFloat32, kBfloat16, kInt8 };

// Reads the option "precision". Throws Failure(TSR_UNAVAILABLE) if it is "bfloat16" or "auto" and the processor lacks
// the instructions, which the failure names. Also throws it if "auto" finds float32 about as fast; the first such layer
// of a process measures that.
Precision read_precision(const tessera::sdk::Setup& setup);

// True if oneDNN uses these instructions of x86. The variable DNNL_MAX_CPU_ISA can forbid some.
bool has_isa(unsigned isa);

// A bfloat16: the upper half of a float32.
using Bf16 = uint16_t;

// A buffer in the host's memory, which grows and never shrinks.
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

// Makes oneDNN's primitive at the first product of a shape, and keeps it. Rows and sums are cut into a few sizes, so
// that batches of any size need few primitives. Call inside a OneThread. [any-thread]
class Bf16Products {
 public:
  // Products of at most `small` results get rows of zeros until they have more; 0: no product does.
  explicit Bf16Products(tessera::sdk::Host host, int64_t small = small_products());
  ~Bf16Products();

  // c [m, n] = a b, or c += a b if `add`; the other members are as in Product (weights.h).
  struct Shape {
    bool trans_a, trans_b, add;
    int64_t m, n, k, lda, ldb, ldc;
    bool packed = false;                             // pack() wrote b; trans_b and ldb are not read
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
  };

  // Rounds `rows` rows of `x` and multiplies them by b. A row's result does not depend on the other rows. shape.lda is
  // the floats from one row of `x` to the next; shape.m is not read.
  void multiply_rows(const Loops& loops, Shape shape, int64_t rows, const float* x, const Bf16* b, float* c);

  // c [m, n] += transposed a [k, m] times b [k, n]. a and b have sums_of(k) rows, with zeros beyond k; b is packed. The
  // rows of c are n floats apart.
  void add_products(int64_t m, int64_t n, int64_t k, const Bf16* a, const Bf16* b, float* c);
  static constexpr int64_t kSumUnit = 64;
  static int64_t sums_of(int64_t k) { return (k + kSumUnit - 1) / kSumUnit * kSumUnit; }
  // The number of values of b [k, n] in the layout that add_products() reads, with its sums_of(k) rows.
  static int64_t packed_size(int64_t k, int64_t n) { return sums_of(k) * columns_of(n); }
  // Rounds and packs rows [first, first + kSumUnit) of b [k, n] to their places in `to`.
  void pack(const Loops& loops, int64_t k, int64_t n, int64_t first, const float* b, int64_t ldb, Bf16* to) const;

 private:
  // With AMX, oneDNN 2.6 computes products of up to 256 results by other code, which sums in another order.
  static int64_t small_products();
  // The fewest rows of n values that are multiplied at once.
  int64_t least_rows(int64_t n) const;
  // oneDNN's format BA16a64b2a: for 64 columns, pairs of rows side by side.
  static constexpr int64_t kColumns = 64;
  static int64_t columns_of(int64_t n) { return (n + kColumns - 1) / kColumns * kColumns; }
  struct Engine;  // oneDNN's engine, which all primitives and streams share
  struct Primitive;
  struct Memory;  // used by one call at a time
  class Borrowed;
  template <class Body>
  static void for_sums(int64_t k, const Body& body);
  std::unique_ptr<Primitive> make(const Shape& shape) const;
  const Primitive& primitive(const Shape& shape);
  void run(const Primitive& primitive, const Bf16* a, const Bf16* b, float* c, Memory& memory) const;

  tessera::sdk::Host host_;
  int64_t small_;
  std::unique_ptr<Engine> engine_;
  bool packs_ = true;       // false: oneDNN does not take the format here, and pack() keeps the rows' order
  std::shared_mutex lock_;  // guards primitives_
  std::map<Shape, std::unique_ptr<Primitive>> primitives_;
  std::mutex memory_lock_;
  std::vector<std::unique_ptr<Memory>> free_memory_;
};

}  // namespace tessera_dense
