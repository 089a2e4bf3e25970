// Measures the matrix products of a model's dense layers with weights in oneDNN's own layout, in float32 or bfloat16: a
// second reference for the dense part of a step, beside sgemm.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/sgemm.h"
#include "tessera/runtime.h"

namespace tessera::cli {

// The same products as DenseProducts's, by oneDNN's matmul. Operands have the type and the layout that the primitives
// ask for before the time begins, so that nothing is converted.
class PackedProducts {
 public:
  // The runtime outlives this.
  PackedProducts(const Runtime& runtime, const std::vector<MatrixProduct>& layers, int64_t batch, bool bf16);
  ~PackedProducts();

  // False: oneDNN 2 was not there when this was built or is not there now, or the processor multiplies no bfloat16.
  bool available() const;
  void run();  // runs all products once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
