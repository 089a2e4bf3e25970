#include "distributed/touched_rows.h"

#include <algorithm>

namespace tessera {

TouchedRows::TouchedRows(const std::vector<int64_t>& rows) : begin_{0} {
  for (const int64_t n : rows) begin_.push_back(begin_.back() + (n + kBits - 1) / kBits);
  mine_.resize(static_cast<size_t>(begin_.back()));
}

void TouchedRows::clear() { std::fill(mine_.begin(), mine_.end(), 0); }

void TouchedRows::share(const ProcessGroup& group, uint64_t place) {
  const auto ranks = static_cast<size_t>(group.world_size());
  if (ranks == 1 || mine_.empty()) return;
  any_.resize(mine_.size());
  all_.resize(ranks * mine_.size());
  counts_.assign(ranks, std::ssize(mine_));
  const auto view = [](std::vector<uint64_t>& v) { return Tensor::borrow(v.data(), {std::ssize(v)}, DType::kInt64); };
  group.all_gather_v(view(mine_), view(all_), counts_, {"data-parallel rows", place, Carries::kIds}).wait();
  std::copy_n(all_.begin(), mine_.size(), any_.begin());
  for (size_t r = 1; r < ranks; ++r) {
    for (size_t i = 0; i < any_.size(); ++i) any_[i] |= all_[r * any_.size() + i];
  }
}

int64_t TouchedRows::count(size_t table) const {
  int64_t n = 0;
  for (int64_t w = begin_[table]; w < begin_[table + 1]; ++w) n += std::popcount(any()[w]);
  return n;
}

}  // namespace tessera
