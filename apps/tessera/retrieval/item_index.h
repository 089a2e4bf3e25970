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

  // What a search works with, for one thread at a time.
  struct Scratch {
    std::vector<float> queries, products;
  };
  // [any-thread] queries [n, dim] to the `k` <= items() best of each: items[n, k] and scores[n, k], the largest dot
  // product first, of equal ones the lowest number. All items are compared; what a query finds does not depend on
  // the others.
  void search(std::span<const float> queries, int64_t k, Scratch& scratch, std::span<int32_t> items,
              std::span<float> scores) const;

 private:
  int64_t items_, dim_, first_;
  size_t stride_;  // dim in padded vectors
  std::vector<float> vectors_;
  Dots dots_ = best_dots();
};

}  // namespace tessera::retrieval
