#include "modules/sequence_groups.h"

#include <algorithm>

namespace tessera {

void SequenceGroups::join(Pair pair) {
  const size_t a = of(pair.first), b = of(pair.second);
  std::replace(same_.begin(), same_.end(), std::max(a, b), std::min(a, b));
  joined_.push_back(std::move(pair));
}

void SequenceGroups::check(const std::vector<DenseInput>& sequences) const {
  for (const Pair& pair : joined_) {
    const Tensor& a = sequences[pair.first - 1].offsets;
    const Tensor& b = sequences[pair.second - 1].offsets;
    const int64_t sample = first_difference(a, b);
    if (sample < 0) continue;
    fail(Code::kInvalidArgument, "the layer \"", pair.layer, "\" takes \"", pair.first_name, "\" and \"",
         pair.second_name, "\" row by row, but sample ", sample, " of a batch has ", rows_of(a, sample),
         " rows of the first and ", rows_of(b, sample), " of the second: give both as many in every sample");
  }
}

int64_t first_difference(const Tensor& offsets, const Tensor& others) {
  if (offsets.raw() == others.raw()) return -1;
  const std::span<const int64_t> a = offsets.span<int64_t>(), b = others.span<int64_t>();
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return at == a.end() ? -1 : at - a.begin() - 1;
}

int64_t rows_of(const Tensor& offsets, int64_t sample) {
  const std::span<const int64_t> bounds = offsets.span<int64_t>();
  return bounds[static_cast<size_t>(sample) + 1] - bounds[static_cast<size_t>(sample)];
}

}  // namespace tessera
