#include "modules/id_inputs.h"

#include "sparse/arrays.h"

namespace tessera {
namespace {

void copy_ids(const KeyedJaggedTensor& batch, const std::string& feature, const Tensor& to) {
  const int64_t key = batch.key_index(feature), samples = batch.stride();
  int64_t at = batch.offset_per_key()[static_cast<size_t>(key)];
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t ids = sparse::integer_at(batch.lengths(), key * samples + s);
    if (ids != 1)
      fail(Code::kInvalidArgument, "sample ", s, " of a batch has ", ids, " ids of \"", feature,
           "\", but what takes its ids needs one of each sample: name a column that has one everywhere");
    to.data<int64_t>()[s] = sparse::integer_at(batch.values(), at++);
  }
}

}  // namespace

const std::vector<Tensor>& IdInputs::take(const KeyedJaggedTensor& batch) {
  memory_.resize(features_.size());
  taken_.clear();
  const int64_t samples = batch.stride();
  for (size_t i = 0; i < features_.size(); ++i) {
    if (!memory_[i].defined() || memory_[i].numel() < samples) memory_[i] = Tensor::empty({samples}, DType::kInt64);
    taken_.push_back(memory_[i].first({samples, 1}));
    copy_ids(batch, features_[i], taken_[i]);
  }
  return taken_;
}

}  // namespace tessera
