// Rows of sequences as a graph of layers takes them.
#pragma once

#include <vector>

#include "tessera/dense.h"
#include "tessera/jagged_tensor.h"

namespace tessera {

class SequenceInputs {
 public:
  // Of each, in their order: its rows, in host memory, and where samples begin there. Valid until the next call.
  const std::vector<DenseInput>& take(const JaggedTensorDict& sequences);

 private:
  std::vector<Tensor> offsets_;  // int64, which only grow
  std::vector<DenseInput> inputs_;
};

}  // namespace tessera
