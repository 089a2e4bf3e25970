#include "retrieval/item_index.h"

#include <algorithm>
#include <cmath>

#include "tessera/error.h"

namespace tessera::retrieval {
namespace {

// The best so far of one query, the first one the best.
struct Found {
  std::span<int32_t> items;
  std::span<float> scores;
  size_t count = 0;

  // Items come in the order of their numbers: one that is as good as another goes behind it.
  void offer(int32_t item, float score) {
    if (count == scores.size() && !(score > scores.back())) return;
    count = std::min(count + 1, scores.size());
    size_t at = count - 1;
    for (; at > 0 && score > scores[at - 1]; --at) {
      scores[at] = scores[at - 1];
      items[at] = items[at - 1];
    }
    scores[at] = score;
    items[at] = item;
  }
};

}  // namespace

ItemIndex::ItemIndex(const Tensor& vectors, int64_t first)
    : items_(vectors.dim() == 2 ? vectors.size(0) : 0), dim_(vectors.dim() == 2 ? vectors.size(1) : 0), first_(first) {
  if (items_ < 1 || first_ + items_ > kMostItems || dim_ < 1)
    fail(Code::kInvalidArgument, "a search is among 1 to ", kMostItems, " items with at least one value each, not ",
         items_, " with ", dim_);
  stride_ = (static_cast<size_t>(dim_) + kPadding - 1) / kPadding * kPadding;
  vectors_.resize(static_cast<size_t>(items_) * stride_);
  const std::span<const float> values = vectors.span<float>();
  for (size_t i = 0; i < static_cast<size_t>(items_); ++i) {
    const std::span<const float> row = values.subspan(i * static_cast<size_t>(dim_), static_cast<size_t>(dim_));
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }))
      fail(Code::kInvalidArgument, "the vector of item ", first_ + static_cast<int64_t>(i), " has NaN or infinity");
    std::copy(row.begin(), row.end(), vectors_.begin() + static_cast<int64_t>(i * stride_));
  }
}

void ItemIndex::search(std::span<const float> queries, int64_t k, Scratch& scratch, std::span<int32_t> items,
                       std::span<float> scores) const {
  constexpr size_t kBlock = 512;  // items whose vectors stay in the cache while all queries meet them
  const auto dim = static_cast<size_t>(dim_), all = static_cast<size_t>(items_), n = queries.size() / dim;
  const auto best = static_cast<size_t>(k);
  TESSERA_CHECK(k >= 1 && k <= items_ && items.size() == n * best && scores.size() == n * best, "room for the best");
  const size_t padded = (n + kQueries - 1) / kQueries * kQueries;  // the last ones are zeros
  scratch.queries.assign(padded * stride_, 0.0f);
  for (size_t q = 0; q < n; ++q) std::copy_n(queries.data() + q * dim, dim, scratch.queries.data() + q * stride_);
  scratch.products.resize(kQueries * kBlock);
  std::array<float*, kQueries> out{};
  for (size_t q = 0; q < kQueries; ++q) out[q] = scratch.products.data() + q * kBlock;
  std::vector<Found> found;
  for (size_t q = 0; q < n; ++q) found.push_back({items.subspan(q * best, best), scores.subspan(q * best, best)});
  for (size_t first = 0; first < all; first += kBlock) {
    const size_t count = std::min(kBlock, all - first);
    for (size_t q0 = 0; q0 < n; q0 += kQueries) {
      std::array<const float*, kQueries> four{};
      for (size_t q = 0; q < kQueries; ++q) four[q] = scratch.queries.data() + (q0 + q) * stride_;
      dots_(four, vectors_.data() + first * stride_, count, stride_, out);
      for (size_t q = 0; q < std::min(kQueries, n - q0); ++q) {
        for (size_t i = 0; i < count; ++i)
          found[q0 + q].offer(static_cast<int32_t>(static_cast<size_t>(first_) + first + i), out[q][i]);
      }
    }
  }
}

}  // namespace tessera::retrieval
