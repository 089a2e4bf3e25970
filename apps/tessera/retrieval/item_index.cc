#include "retrieval/item_index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/error.h"

namespace tessera::retrieval {
namespace {

using Found = ItemIndex::Found;

// bytes of items that stay in the cache while all queries pass over them
constexpr size_t kChunkBytes = size_t{128} << 10;
constexpr size_t kMostOfChunk = 2048;  // items in a chunk, which bounds their products as well

// Orders by score, then by lower item number.
bool better(const Found& a, const Found& b) { return a.score > b.score || (a.score == b.score && a.item < b.item); }

float or_smallest(float score) { return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score; }

// The best items of one query so far, with the worst of them on top.
struct Heap {
  std::span<Found> room;
  size_t& count;

  bool full() const { return count == room.size(); }
  float worst() const { return room.front().score; }
  void add(const Found& found) {
    room[count++] = {or_smallest(found.score), found.item};
    std::push_heap(room.begin(), room.begin() + static_cast<int64_t>(count), better);
  }
  void replace_worst(const Found& found) {
    std::pop_heap(room.begin(), room.end(), better);
    room.back() = found;
    std::push_heap(room.begin(), room.end(), better);
  }
};

}  // namespace

ItemIndex::ItemIndex(const Tensor& vectors, int64_t first)
    : items_(vectors.dim() == 2 ? vectors.size(0) : 0), dim_(vectors.dim() == 2 ? vectors.size(1) : 0), first_(first) {
  if (items_ < 1 || first_ + items_ > kMostItems || dim_ < 1)
    fail(Code::kInvalidArgument, "a search is among 1 to ", kMostItems, " items with at least one value each, not ",
         items_, " with ", dim_);
  const auto dim = static_cast<size_t>(dim_);
  padded_ = (static_cast<size_t>(items_) + kBeside - 1) / kBeside * kBeside;
  vectors_.resize(padded_ * dim);
  const std::span<const float> values = vectors.span<float>();
  for (size_t i = 0; i < static_cast<size_t>(items_); ++i) {
    const std::span<const float> row = values.subspan(i * dim, dim);
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }))
      fail(Code::kInvalidArgument, "the vector of item ", first_ + static_cast<int64_t>(i), " has NaN or infinity");
    float* const to = vectors_.data() + i / kBeside * kBeside * dim + i % kBeside;
    for (size_t c = 0; c < dim; ++c) to[c * kBeside] = row[c];
  }
}

void ItemIndex::search(std::span<const float> queries, int64_t k, Scratch& scratch, std::span<int32_t> items,
                       std::span<float> scores) const {
  const auto dim = static_cast<size_t>(dim_), all = static_cast<size_t>(items_), n = queries.size() / dim;
  const auto best = static_cast<size_t>(k);
  TESSERA_CHECK(k >= 1 && k <= items_ && items.size() == n * best && scores.size() == n * best, "room for the best");
  const size_t groups = (n + kQueries - 1) / kQueries;
  scratch.queries.assign(groups * kQueries * dim, 0.0f);  // [dim][kQueries] per group
  for (size_t q = 0; q < n; ++q) {
    float* const to = scratch.queries.data() + q / kQueries * kQueries * dim + q % kQueries;
    for (size_t c = 0; c < dim; ++c) to[c * kQueries] = queries[q * dim + c];
  }
  const size_t chunk = std::clamp(kChunkBytes / (dim * sizeof(float)) / kBeside * kBeside, 4 * kBeside, kMostOfChunk);
  scratch.products.resize(kQueries * chunk);
  scratch.found.resize(n * best);
  scratch.counts.assign(n, 0);

  for (size_t first = 0; first < padded_; first += chunk) {
    const size_t count = std::min(chunk, padded_ - first);
    const ItemBlocks blocks{vectors_.data() + first * dim, count / kBeside, dim};
    for (size_t q0 = 0; q0 < n; q0 += kQueries) {
      const size_t together = std::min(kQueries, n - q0);
      loops_.products(scratch.queries.data() + q0 * dim, together, blocks, scratch.products.data(), chunk);
      for (size_t q = 0; q < together; ++q) {
        Heap heap{std::span(scratch.found).subspan((q0 + q) * best, best), scratch.counts[q0 + q]};
        const float* const products = scratch.products.data() + q * chunk;
        const size_t real = std::min(count, all - first);  // the items after these are padding
        const auto found = [&](size_t i) {
          return Found{products[i], static_cast<int32_t>(static_cast<size_t>(first_) + first + i)};
        };
        size_t i = 0;
        for (; i < real && !heap.full(); ++i) heap.add(found(i));
        // Items come in the order of their numbers, so one that equals the worst is not better.
        if (heap.full()) {
          for (i = loops_.next_above(products, i, count, heap.worst()); i < real;
               i = loops_.next_above(products, i + 1, count, heap.worst()))
            heap.replace_worst(found(i));
        }
      }
    }
  }
  for (size_t q = 0; q < n; ++q) {
    const std::span<Found> found = std::span(scratch.found).subspan(q * best, best);
    std::sort_heap(found.begin(), found.end(), better);
    for (size_t i = 0; i < best; ++i) {
      items[q * best + i] = found[i].item;
      scores[q * best + i] = found[i].score;
    }
  }
}

void ItemIndex::order(std::span<const float> query, std::span<const int32_t> rows, Scratch& scratch,
                      std::span<int32_t> items, std::span<float> scores) const {
  const auto dim = static_cast<size_t>(dim_);
  TESSERA_CHECK(query.size() == dim && items.size() == rows.size() && scores.size() == rows.size(),
                "room for the rows");
  scratch.queries.assign(kQueries * dim, 0.0f);
  for (size_t c = 0; c < dim; ++c) scratch.queries[c * kQueries] = query[c];
  const size_t blocks = (rows.size() + kBeside - 1) / kBeside;
  scratch.some.assign(blocks * kBeside * dim, 0.0f);
  const auto place = [&](size_t item) { return item / kBeside * kBeside * dim + item % kBeside; };
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* const from = vectors_.data() + place(static_cast<size_t>(rows[i]));
    float* const to = scratch.some.data() + place(i);
    for (size_t c = 0; c < dim; ++c) to[c * kBeside] = from[c * kBeside];
  }
  scratch.products.resize(std::max(scratch.products.size(), blocks * kBeside));
  loops_.products(scratch.queries.data(), 1, {scratch.some.data(), blocks, dim}, scratch.products.data(),
                  blocks * kBeside);
  scratch.found.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    scratch.found[i] = {or_smallest(scratch.products[i]), static_cast<int32_t>(first_ + rows[i])};
  std::sort(scratch.found.begin(), scratch.found.end(), better);
  for (size_t i = 0; i < rows.size(); ++i) {
    items[i] = scratch.found[i].item;
    scores[i] = scratch.found[i].score;
  }
}

}  // namespace tessera::retrieval
