#include "conformance/parity/feature_processor.h"

#include <algorithm>

#include "sparse/arrays.h"

namespace tessera {

PositionWeightedModuleCollection::PositionWeightedModuleCollection(const std::vector<Feature>& features) {
  for (const Feature& f : features) {
    if (f.max_length < 1)
      fail(Code::kInvalidArgument, "feature \"", f.name, "\": the longest bag must have at least one id, not ",
           f.max_length);
    for (const Parameter& p : parameters_) {
      if (p.feature == f.name) fail(Code::kInvalidArgument, "feature \"", f.name, "\" is listed twice");
    }
    Tensor weight = Tensor::empty({f.max_length});
    weight.fill(1);
    parameters_.push_back({f.name, weight});
  }
}

// Calls body(parameter, id, the id's position in its bag) for all ids of the listed features.
template <class Body>
void PositionWeightedModuleCollection::each(const KeyedJaggedTensor& features, const Body& body) const {
  const std::vector<int64_t> bags = features.lengths_offset_per_key();
  const Tensor& offsets = features.offsets();
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const auto key = static_cast<size_t>(features.key_index(parameters_[p].feature));
    const int64_t longest = parameters_[p].weight.numel();
    for (int64_t bag = bags[key]; bag < bags[key + 1]; ++bag) {
      const int64_t first = sparse::integer_at(offsets, bag), count = sparse::integer_at(offsets, bag + 1) - first;
      if (count > longest) {
        fail(Code::kOutOfRange, "feature \"", parameters_[p].feature, "\", sample ", bag - bags[key], " has ", count,
             " ids, but position weights for ", longest);
      }
      for (int64_t i = 0; i < count; ++i) body(p, first + i, i);
    }
  }
}

KeyedJaggedTensor PositionWeightedModuleCollection::forward(const KeyedJaggedTensor& features) const {
  const Tensor weights = Tensor::empty({features.values().numel()});
  std::fill_n(weights.data<float>(), weights.numel(), 1.0f);
  each(features,
       [&](size_t p, int64_t id, int64_t at) { weights.data<float>()[id] = parameters_[p].weight.data<float>()[at]; });
  KeyedJaggedTensor::Options options;
  options.keys = features.keys();
  options.values = features.values();
  options.weights = weights;
  options.lengths = features.lengths();
  if (!features.variable_stride_per_key()) options.stride = features.stride();
  options.stride_per_key_per_rank = features.stride_per_key_per_rank();
  options.variable_stride = features.variable_stride_per_key();
  if (const auto* inverse = features.inverse_indices_or_null()) options.inverse_indices = *inverse;
  return KeyedJaggedTensor(std::move(options));
}

std::vector<Tensor> PositionWeightedModuleCollection::backward(const KeyedJaggedTensor& features,
                                                               const Tensor& grad_weights) const {
  if (grad_weights.numel() != features.values().numel()) {
    fail(Code::kInvalidArgument, "the gradient of the weights has ", grad_weights.numel(), " values, but there are ",
         features.values().numel(), " ids");
  }
  std::vector<Tensor> out;
  for (const Parameter& p : parameters_) out.push_back(Tensor::zeros(p.weight.shape()));
  each(features, [&](size_t p, int64_t id, int64_t at) { out[p].data<float>()[at] += grad_weights.data<float>()[id]; });
  return out;
}

}  // namespace tessera
