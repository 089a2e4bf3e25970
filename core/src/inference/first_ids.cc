#include "inference/first_ids.h"

#include <algorithm>

namespace tessera::inference {

namespace {

Tensor grown(Tensor& memory, int64_t numel) {
  if (!memory.defined() || memory.numel() < numel) memory = Tensor::empty({std::max<int64_t>(numel, 1)}, DType::kInt64);
  return memory.first({numel});
}

}  // namespace

FirstIds::FirstIds(const ModelGraph& graph, const ModelDescription& model) : memory_(graph.ids.size()) {
  for (const IdFeature& feature : graph.ids) {
    const auto found = std::find_if(model.features.begin(), model.features.end(),
                                    [&](const ModelFeature& f) { return f.name == feature.name; });
    TESSERA_CHECK(found != model.features.end(), "layers take ids of tables' features");
    features_.push_back(static_cast<size_t>(found - model.features.begin()));
    of_sequence_.push_back(feature.sequence >= 0);
  }
}

const std::vector<DenseInput>& FirstIds::take(const PredictInput& input) {
  taken_.clear();
  for (size_t i = 0; i < features_.size(); ++i) {
    if (of_sequence_[i])
      take_all(input, i);
    else
      take_first(input, i);
  }
  return taken_;
}

void FirstIds::take_first(const PredictInput& input, size_t i) {
  const Tensor ids = grown(memory_[i].ids, input.batch).reshape({input.batch, 1});
  const PredictInput::Feature& feature = input.features[features_[i]];
  int64_t* to = ids.data<int64_t>();
  size_t at = 0;
  for (const int32_t length : feature.lengths) {
    *to++ = length > 0 ? feature.values[at] : -1;
    at += static_cast<size_t>(length);
  }
  taken_.emplace_back(ids);
}

void FirstIds::take_all(const PredictInput& input, size_t i) {
  const PredictInput::Feature& feature = input.features[features_[i]];
  const int64_t count = std::ssize(feature.values);
  const Tensor ids = grown(memory_[i].ids, count).reshape({count, 1});
  const Tensor offsets = grown(memory_[i].offsets, input.batch + 1);
  std::copy(feature.values.begin(), feature.values.end(), ids.data<int64_t>());
  int64_t* bounds = offsets.data<int64_t>();
  bounds[0] = 0;
  for (const int32_t length : feature.lengths) {
    bounds[1] = bounds[0] + length;
    ++bounds;
  }
  taken_.emplace_back(ids, offsets);
}

}  // namespace tessera::inference
