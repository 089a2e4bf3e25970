// Vectors of items, and the exact search for the items with the largest dot products.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "retrieval/dots.h"
#include "tessera/tensor.h"

namespace tessera::retrieval {

class ItemIndex {
 public:
  static constexpr int64_t kMostItems = int64_t{1} << 24;  // their numbers are exact in float32

  // `vectors` is float32 [items, dim], not empty, and finite; it is copied. Item i has number first + i. Throws
  // kInvalidArgument for other tensors, and for numbers of kMostItems or more.
  explicit ItemIndex(const Tensor& vectors, int64_t first = 0);
  int64_t items() const { return items_; }
  int64_t dim() const { return dim_; }

  // Memory for a search; used by one thread at a time.
  struct Found {
    float score = 0;
    int32_t item = 0;
  };
  struct Scratch {
    std::vector<float> queries, products, some;  // some: the vectors of a few items
    std::vector<Found> found;                    // the best so far: a heap per query, with its worst item first
    std::vector<size_t> counts;
  };
  // [any-thread] Finds the `k` <= items() best items for each of the queries [n, dim]. items[n, k] and scores[n, k]
  // have the largest dot product first; of equal ones, the lowest number first. All items are compared. A query's
  // result does not depend on the other queries, nor on how items are divided into parts. A product that is NaN counts
  // as the smallest.
  void search(std::span<const float> queries, int64_t k, Scratch& scratch, std::span<int32_t> items,
              std::span<float> scores) const;
  // [any-thread] Orders `rows`, some of the items counted from 0, by their products with one query. items and scores
  // have the same form and bits as those of search().
  void order(std::span<const float> query, std::span<const int32_t> rows, Scratch& scratch, std::span<int32_t> items,
             std::span<float> scores) const;

 private:
  int64_t items_, dim_, first_;
  size_t padded_;               // number of items rounded up to whole blocks; the padding is zeros
  std::vector<float> vectors_;  // [blocks][dim][kBeside]
  SearchLoops loops_ = best_search_loops();
};

}  // namespace tessera::retrieval
