// Ids of samples in the form that layers and losses of a graph take.
#pragma once

#include <utility>
#include <vector>

#include "tessera/jagged_tensor.h"
#include "tessera/layer_graph.h"

namespace tessera {

class IdInputs {
 public:
  explicit IdInputs(std::vector<IdFeature> features) : features_(std::move(features)), memory_(features_.size()) {}

  // Returns for each feature the one id of each sample, int64 [samples, 1], or all ids of a sequence with their
  // offsets. The result is valid until the next call. The batch must be in host memory. kInvalidArgument: a sample does
  // not have exactly one id; the error has its place in the batch. kNotFound: no such feature.
  const std::vector<DenseInput>& take(const KeyedJaggedTensor& batch);

 private:
  struct Memory {
    Tensor ids, offsets;  // these only grow
  };
  std::vector<IdFeature> features_;
  std::vector<Memory> memory_;
  std::vector<DenseInput> taken_;
};

}  // namespace tessera
