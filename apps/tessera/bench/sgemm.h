// Measures how fast the matrix products of a model's dense layers are by themselves, as a reference for the dense part
// of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/runtime.h"

namespace tessera::cli {

struct MatrixProduct {
  int64_t in = 0, out = 0;
  bool wants_input_gradient = true;
};

// The products of one training step of layers: forward, and the gradients of weights and inputs. oneDNN's sgemm runs
// them on memory of their shapes; each of the runtime's threads has its part of the batch and its own operands. oneDNN
// is opened only when asked for, so that no other command loads it.
class DenseProducts {
 public:
  // `pairs`: additional flops per step, of dot products of pairs. The runtime outlives this.
  DenseProducts(const Runtime& runtime, std::vector<MatrixProduct> layers, double pairs, int64_t batch);
  ~DenseProducts();

  bool available() const;  // true if oneDNN is installed and there are layers
  // Operations of one step, counting 2 for a product and its addition: for these products, and with those of pairs.
  double flops() const;
  double dense_flops() const;
  void run();  // runs all products once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
