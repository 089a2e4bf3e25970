// Matrix products whose inputs are rounded to 8 bits. Sums are exact integers, so a row's result is the same on every
// processor, and depends neither on the other rows nor on threads.
//
// A matrix [out, in] has a scale for each output. A row of x has one scale, from its own largest magnitude: a row
// without negative values is rounded to 0 to 255, and any other to -127 to 127, stored as 1 to 255.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "support.h"

namespace tessera_dense {

struct Int8Row {
  float scale;   // NaN if the row has a value that is not finite; its results are then NaN
  int32_t zero;  // the integer that stands for 0: 0 or 128
};

struct Int8Product {
  int64_t rows, groups, out;  // a group is 4 inputs
  const uint8_t* x;           // [rows, 4 * groups]
  const Int8Row* of_rows;
  const int8_t* w;      // in the layout of Int8Products::pack()
  const float* scales;  // [out]
  const int32_t* sums;  // [out]: the sum of an output's rounded weights
  float* y;
  int64_t stride;  // floats from one row of y to the next
};

// Functions compiled for one instruction set.
struct Int8Kernels {
  // Writes x [rows, in], rounded, to `to` [rows, stride], with zeros beyond `in`.
  void (*round_rows)(int64_t rows, int64_t in, const float* x, int64_t stride, uint8_t* to, Int8Row* of_rows);
  void (*multiply)(const Int8Product& product);
};
namespace portable {
extern const Int8Kernels kInt8Kernels;
}
namespace avx2 {
extern const Int8Kernels kInt8Kernels;
}
namespace avx512 {
extern const Int8Kernels kInt8Kernels;  // needs AVX512-VNNI
}
const Int8Kernels& choose_int8();

class Int8Products {
 public:
  explicit Int8Products(tessera::sdk::Host host) : host_(host), kernels_(choose_int8()) {}

  // Wider sums could overflow; for narrower products, rounding takes as long as it saves.
  static bool rounds(int64_t in, int64_t out) { return in >= 32 && out >= 32 && in <= (int64_t{1} << 16); }

  // Adds a matrix [out, in], or replaces matrix `i`.
  void pack(size_t i, int64_t in, int64_t out, const float* w);
  // y [rows, out] = x [rows, in] times matrix `i` transposed; strides are the floats from one row to the next.
  // [any-thread]
  void multiply(size_t i, int64_t rows, const float* x, int64_t x_stride, float* y, int64_t stride);

 private:
  struct Matrix {
    int64_t in = 0, out = 0;
    tessera::sdk::Buffer w;
    std::vector<float> scales;
    std::vector<int32_t> sums;
  };
  struct Rows {
    tessera::sdk::Buffer x;
    std::vector<Int8Row> of_rows;
  };
  class Borrowed;

  tessera::sdk::Host host_;
  const Int8Kernels& kernels_;
  std::vector<Matrix> matrices_;
  std::mutex lock_;
  std::vector<std::unique_ptr<Rows>> free_;  // memory that no call uses
};

}  // namespace tessera_dense
