#include "modules/sequence_groups.h"

#include <algorithm>

namespace tessera {

void SequenceGroups::join(Pair pair) {
  const size_t a = of(pair.first), b = of(pair.second);
  std::replace(same_.begin(), same_.end(), std::max(a, b), std::min(a, b));
  joined_.push_back(std::move(pair));
}

bool SequenceGroups::join_fewest(std::vector<Pair> pairs, const std::function<bool(const SequenceGroups&)>& accepts) {
  std::erase_if(
      pairs, [&](const Pair& p) { return !is_input(p.first) || !is_input(p.second) || of(p.first) == of(p.second); });
  const auto joined = [&](const std::vector<Pair>& some) {
    SequenceGroups out = *this;
    for (const Pair& pair : some) {
      if (out.of(pair.first) != out.of(pair.second)) out.join(pair);
    }
    return out;
  };
  if (pairs.empty() || !accepts(joined(pairs))) return false;
  // Each order leaves out pairs until all of the rest are needed. They may end with different pairs.
  const auto needed = [&](bool first_ones_first) {
    std::vector<Pair> out = pairs;
    for (size_t n = 0, kept = 0; n < pairs.size(); ++n) {
      std::vector<Pair> fewer = out;
      const size_t at = first_ones_first ? kept : out.size() - 1 - kept;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
      if (accepts(joined(fewer)))
        out = std::move(fewer);
      else
        ++kept;
    }
    return out;
  };
  const std::vector<Pair> a = needed(false), b = needed(true);
  *this = joined(b.size() < a.size() ? b : a);
  return true;
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
