// Rows of sequences as a graph of layers takes them.
#pragma once

#include <vector>

#include "tessera/dense.h"
#include "tessera/jagged_tensor.h"

namespace tessera {

class SequenceInputs {
 public:
  // The rows of each sequence, in their order, in host memory, and the offsets of samples in them. Valid until the next
  // call.
  const std::vector<DenseInput>& take(const JaggedTensorDict& sequences);

 private:
  std::vector<Tensor> offsets_;  // int64, which only grow
  std::vector<DenseInput> inputs_;
};

}  // namespace tessera
