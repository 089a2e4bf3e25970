#include "modules/id_inputs.h"

#include <algorithm>

#include "sparse/arrays.h"

namespace tessera {
namespace {

// The ids of a feature in a batch.
struct FeatureIds {
  FeatureIds(const KeyedJaggedTensor& from, const std::string& feature)
      : batch(from), key(from.key_index(feature)), samples(from.stride()) {}
  int64_t begin() const { return batch.offset_per_key()[static_cast<size_t>(key)]; }
  int64_t count() const { return batch.offset_per_key()[static_cast<size_t>(key) + 1] - begin(); }
  int64_t of_sample(int64_t sample) const { return sparse::integer_at(batch.lengths(), key * samples + sample); }

  const KeyedJaggedTensor& batch;
  int64_t key, samples;
};

Tensor grown(Tensor& memory, int64_t numel) {
  if (!memory.defined() || memory.numel() < numel) memory = Tensor::empty({std::max<int64_t>(numel, 1)}, DType::kInt64);
  return memory.first({numel});
}

void check_one_each(const FeatureIds& ids, const std::string& feature) {
  for (int64_t s = 0; s < ids.samples; ++s) {
    if (ids.of_sample(s) == 1) continue;
    fail(Code::kInvalidArgument, "sample ", s, " of a batch has ", ids.of_sample(s), " ids of \"", feature,
         "\", but layers that take its ids need one id for each sample: name a column with one id in every row");
  }
}

}  // namespace

const std::vector<DenseInput>& IdInputs::take(const KeyedJaggedTensor& batch) {
  taken_.clear();
  for (size_t i = 0; i < features_.size(); ++i) {
    const IdFeature& feature = features_[i];
    const FeatureIds ids(batch, feature.name);
    const bool sequence = feature.sequence >= 0;
    if (!sequence) check_one_each(ids, feature.name);
    const Tensor values = grown(memory_[i].ids, ids.count()).reshape({ids.count(), 1});
    for (int64_t k = 0; k < ids.count(); ++k)
      values.data<int64_t>()[k] = sparse::integer_at(batch.values(), ids.begin() + k);
    if (!sequence) {
      taken_.emplace_back(values);
      continue;
    }
    const Tensor offsets = grown(memory_[i].offsets, ids.samples + 1);
    int64_t* bounds = offsets.data<int64_t>();
    bounds[0] = 0;
    for (int64_t s = 0; s < ids.samples; ++s) bounds[s + 1] = bounds[s] + ids.of_sample(s);
    taken_.emplace_back(values, offsets);
  }
  return taken_;
}

}  // namespace tessera
