// Rows of sequences in the form that a graph of layers takes.
#pragma once

#include <vector>

#include "tessera/dense.h"
#include "tessera/jagged_tensor.h"

namespace tessera {

class SequenceInputs {
 public:
  // Returns the rows of each sequence, in host memory, and the offsets of samples in them. The result is valid until
  // the next call.
  const std::vector<DenseInput>& take(const JaggedTensorDict& sequences);

 private:
  std::vector<Tensor> offsets_;  // int64; they only grow
  std::vector<DenseInput> inputs_;
};

}  // namespace tessera
