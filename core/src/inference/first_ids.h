// Ids of samples for layers of a graph that take ids, from a prediction's input.
#pragma once

#include <vector>

#include "tessera/layer_graph.h"
#include "tessera/predictor.h"

namespace tessera::inference {

class FirstIds {
 public:
  // Takes the features in graph.ids, all of which the model has.
  FirstIds(const ModelGraph& graph, const ModelDescription& model);

  // Returns each sample's first id, int64 [batch, 1] for each feature, valid until the next call. It is -1 if the
  // sample has none; a request for items, for example, has no users. For a sequence: all ids, and their offsets.
  const std::vector<DenseInput>& take(const PredictInput& input);

 private:
  struct Memory {
    Tensor ids, offsets;  // which only grow
  };
  void take_first(const PredictInput& input, size_t i);
  void take_all(const PredictInput& input, size_t i);

  std::vector<size_t> features_;   // indices into PredictInput::features
  std::vector<bool> of_sequence_;  // by feature
  std::vector<Memory> memory_;
  std::vector<DenseInput> taken_;
};

}  // namespace tessera::inference
