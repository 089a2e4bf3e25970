#include "inference/first_ids.h"

#include <algorithm>

namespace tessera::inference {

FirstIds::FirstIds(const ModelGraph& graph, const ModelDescription& model) : memory_(graph.ids.size()) {
  for (const std::string& name : graph.ids) {
    const auto found = std::find_if(model.features.begin(), model.features.end(),
                                    [&](const ModelFeature& f) { return f.name == name; });
    TESSERA_CHECK(found != model.features.end(), "layers take ids of tables' features");
    features_.push_back(static_cast<size_t>(found - model.features.begin()));
  }
}

const std::vector<Tensor>& FirstIds::take(const PredictInput& input) {
  taken_.clear();
  for (size_t i = 0; i < features_.size(); ++i) {
    if (!memory_[i].defined() || memory_[i].numel() < input.batch)
      memory_[i] = Tensor::empty({input.batch}, DType::kInt64);
    const Tensor ids = memory_[i].first({input.batch, 1});
    const PredictInput::Feature& feature = input.features[features_[i]];
    int64_t* to = ids.data<int64_t>();
    size_t at = 0;
    for (const int32_t length : feature.lengths) {
      *to++ = length > 0 ? feature.values[at] : -1;
      at += static_cast<size_t>(length);
    }
    taken_.push_back(ids);
  }
  return taken_;
}

}  // namespace tessera::inference
