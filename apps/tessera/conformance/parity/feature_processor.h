// Learned weights of ids by position: TorchRec's PositionWeightedModuleCollection.
//
//   PositionWeightedModuleCollection processor({{"history", 50}});
//   KeyedJaggedTensor weighted = processor.forward(features);        // for a collection with is_weighted
//   EmbeddingGradients g = tables.backward(...);
//   std::vector<Tensor> dw = processor.backward(features, g.per_sample_weights);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/jagged_tensor.h"

namespace tessera {

class PositionWeightedModuleCollection {
 public:
  struct Feature {
    std::string name;
    int64_t max_length;  // of a bag; longer bags are refused
  };
  // Weights start at 1. kInvalidArgument: a length below 1, or two features of one name.
  explicit PositionWeightedModuleCollection(const std::vector<Feature>& features);

  // "position_weights.<feature>", float32 [max_length], in feature order. The tensors are shared: write to them to
  // train.
  struct Parameter {
    std::string feature;
    Tensor weight;
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Returns the features with new weights: weight[j] for the j-th id of a bag, and 1 for features that are not listed.
  // kOutOfRange: a bag is longer than max_length.
  KeyedJaggedTensor forward(const KeyedJaggedTensor& features) const;
  // Returns each parameter's gradient, from the gradient of all ids' weights.
  std::vector<Tensor> backward(const KeyedJaggedTensor& features, const Tensor& grad_weights) const;

 private:
  template <class Body>
  void each(const KeyedJaggedTensor& features, const Body& body) const;
  std::vector<Parameter> parameters_;
};

}  // namespace tessera
