// How fast the matrix products of a DLRM's dense layers are by themselves: what the dense part of a step is held
// against.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/dlrm.h"
#include "tessera/runtime.h"

namespace tessera::cli {

// The products of one training step (forward, the weights' and the inputs' gradients) of both MLPs, by oneDNN's sgemm
// on memory of their shapes: each of the runtime's threads has its part of the batch, and operands of its own. oneDNN
// is opened when it is asked for, so that no other command has to load it.
class DenseProducts {
 public:
  DenseProducts(const Runtime& runtime, const DlrmOptions& options, int64_t batch);  // the runtime outlives this
  ~DenseProducts();

  bool available() const;  // oneDNN is on this machine
  // Of one step, 2 for a product and its addition: these products alone, and with those of the interaction.
  double flops() const;
  double dense_flops() const;
  void run();  // all of them once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
