// The ids of samples that layers of a graph take, as a prediction has them.
#pragma once

#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/predictor.h"

namespace tessera::inference {

class FirstIds {
 public:
  // Of the features in graph.ids, all of which the model has.
  FirstIds(const ModelGraph& graph, const ModelDescription& model);

  // The first id of each sample, -1 where it has none: who asks for items has no users. int64 [batch, 1] of each
  // feature, valid until the next call.
  const std::vector<Tensor>& take(const PredictInput& input);

 private:
  std::vector<size_t> features_;  // of PredictInput
  std::vector<Tensor> memory_;    // which only grow
  std::vector<Tensor> taken_;
};

}  // namespace tessera::inference
