#include "modules/sequence_inputs.h"

#include "sparse/arrays.h"

namespace tessera {

const std::vector<DenseInput>& SequenceInputs::take(const JaggedTensorDict& sequences) {
  inputs_.clear();
  offsets_.resize(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const JaggedTensor& sequence = sequences[i].second;
    const int64_t samples = sequence.size();
    Tensor& memory = offsets_[i];
    if (!memory.defined() || memory.numel() < samples + 1) memory = Tensor::empty({samples + 1}, DType::kInt64);
    const Tensor offsets = memory.first({samples + 1});
    int64_t end = 0;
    offsets.data<int64_t>()[0] = 0;
    for (int64_t s = 0; s < samples; ++s)
      offsets.data<int64_t>()[s + 1] = end += sparse::integer_at(sequence.lengths(), s);
    inputs_.emplace_back(in_host_memory(sequence.values()), offsets);
  }
  return inputs_;
}

}  // namespace tessera
