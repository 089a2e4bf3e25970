// tessera/feature_processor.h - weights of ids that are learnt by position: TorchRec's
// PositionWeightedModuleCollection.
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
    int64_t max_length;  // of a bag; longer ones are refused
  };
  // Weights start at 1. kInvalidArgument for a length below 1, or two features of one name.
  explicit PositionWeightedModuleCollection(const std::vector<Feature>& features);

  // "position_weights.<feature>", float32 [max_length], in the order of the features; shared: writing them trains.
  struct Parameter {
    std::string feature;
    Tensor weight;
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The features with weights instead of those they had: that of the j-th id of a bag is weight[j], and 1 for features
  // that are not listed. kOutOfRange names a bag longer than max_length.
  KeyedJaggedTensor forward(const KeyedJaggedTensor& features) const;
  // The gradient of each parameter, given that of the weights of all ids.
  std::vector<Tensor> backward(const KeyedJaggedTensor& features, const Tensor& grad_weights) const;

 private:
  template <class Body>
  void each(const KeyedJaggedTensor& features, const Body& body) const;
  std::vector<Parameter> parameters_;
};

}  // namespace tessera
