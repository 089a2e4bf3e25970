#include "train/unknown_id_sums.h"

namespace tessera {

std::vector<UnknownIds> added_up(std::vector<UnknownIds> counts, const ProcessGroup& group) {
  if (counts.empty() || group.world_size() == 1) return counts;
  std::vector<double> sums;
  for (const UnknownIds& c : counts) {
    sums.push_back(static_cast<double>(c.ids));
    sums.push_back(static_cast<double>(c.unknown));
  }
  const Tensor part = Tensor::from(sums);
  group.all_reduce(part, ReduceOp::kSum, "unknown ids").wait();
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i].ids = static_cast<int64_t>(part.data<double>()[2 * i]);
    counts[i].unknown = static_cast<int64_t>(part.data<double>()[2 * i + 1]);
  }
  return counts;
}

}  // namespace tessera
