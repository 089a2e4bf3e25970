#include "serve/merged_batch.h"

namespace tessera::serve {
namespace {

template <class T>
void append(std::vector<T>& out, std::span<const T> more) {
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace

PredictInput MergedBatch::merge(std::span<const InferRequest* const> requests) {
  dense_.clear(), weights_.clear(), values_.clear(), lengths_.clear(), features_.clear();
  const size_t features = requests[0]->features.size();
  size_t values = 0, samples = 0;
  for (const InferRequest* r : requests) {
    append(dense_, std::span<const float>(r->dense));
    values += r->values.size();
    samples += static_cast<size_t>(r->batch);
  }
  // The arrays must not move, because views of them are handed out while they are filled.
  values_.reserve(values), weights_.reserve(values), lengths_.reserve(samples * features);
  for (size_t f = 0; f < features; ++f) {
    bool weighted = false;
    for (const InferRequest* r : requests) weighted |= !r->features[f].weights.empty();
    const size_t first = values_.size(), first_weight = weights_.size(), first_length = lengths_.size();
    for (const InferRequest* r : requests) {
      const PredictInput::Feature& part = r->features[f];
      append(values_, part.values);
      append(lengths_, part.lengths);
      if (!weighted) continue;
      if (part.weights.empty()) weights_.insert(weights_.end(), part.values.size(), 1.0f);
      append(weights_, part.weights);
    }
    const size_t ids = values_.size() - first;
    features_.push_back({{values_.data() + first, ids},
                         {lengths_.data() + first_length, samples},
                         {weights_.data() + first_weight, weighted ? ids : 0}});
  }
  return {static_cast<int64_t>(samples), dense_, features_};
}

}  // namespace tessera::serve
