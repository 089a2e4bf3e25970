// How fast the matrix products of a model's dense layers are by themselves: what the dense part of a step is held
// against.
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

// The products of one training step (forward, the weights' and the inputs' gradients) of layers, by oneDNN's sgemm
// on memory of their shapes: each of the runtime's threads has its part of the batch, and operands of its own. oneDNN
// is opened when it is asked for, so that no other command has to load it.
class DenseProducts {
 public:
  // `pairs`: flops of a step beside them, of dot products of pairs. The runtime outlives this.
  DenseProducts(const Runtime& runtime, std::vector<MatrixProduct> layers, double pairs, int64_t batch);
  ~DenseProducts();

  bool available() const;  // oneDNN is on this machine, and there are layers
  // Operations of one step, 2 for a product and its addition: these products alone, and with those of pairs.
  double flops() const;
  double dense_flops() const;
  void run();  // all of them once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
