// Vectors of items, and the exact search for those with the largest dot products.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "retrieval/dots.h"
#include "tessera/tensor.h"

namespace tessera::retrieval {

class ItemIndex {
 public:
  static constexpr int64_t kMostItems = int64_t{1} << 24;  // whose numbers are exact in float32

  // vectors: float32 [items, dim], at least one of each, finite; copied. Item i has number first + i. kInvalidArgument:
  // other ones, or numbers from kMostItems on.
  explicit ItemIndex(const Tensor& vectors, int64_t first = 0);
  int64_t items() const { return items_; }
  int64_t dim() const { return dim_; }

  // The memory of a search, for one thread at a time.
  struct Found {
    float score = 0;
    int32_t item = 0;
  };
  struct Scratch {
    std::vector<float> queries, products;
    std::vector<Found> found;  // the best so far: a heap for each query, the worst of them first
    std::vector<size_t> counts;
  };
  // [any-thread] queries [n, dim] to the `k` <= items() best of each: items[n, k] and scores[n, k], the largest dot
  // product first, of equal ones the lowest number. All items are compared; what a query finds does not depend on
  // the others, nor on which items a part has. A product that is no number counts as the least of all.
  void search(std::span<const float> queries, int64_t k, Scratch& scratch, std::span<int32_t> items,
              std::span<float> scores) const;

 private:
  int64_t items_, dim_, first_;
  size_t padded_;               // items in whole blocks; the last ones are zeros
  std::vector<float> vectors_;  // [blocks][dim][kBeside]
  SearchLoops loops_ = best_search_loops();
};

}  // namespace tessera::retrieval
