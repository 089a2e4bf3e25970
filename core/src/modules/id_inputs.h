// Ids of samples as a graph of layers and losses take them.
#pragma once

#include <string>
#include <vector>

#include "tessera/jagged_tensor.h"

namespace tessera {

class IdInputs {
 public:
  explicit IdInputs(std::vector<std::string> features) : features_(std::move(features)) {}

  // The one id of each sample, for each feature, int64 [samples, 1]. Valid until the next call. kInvalidArgument: a
  // sample without one or with several, by its place in the batch, which is in host memory; kNotFound: no such feature.
  const std::vector<Tensor>& take(const KeyedJaggedTensor& batch);

 private:
  std::vector<std::string> features_;
  std::vector<Tensor> memory_;  // which only grow
  std::vector<Tensor> taken_;
};

}  // namespace tessera
