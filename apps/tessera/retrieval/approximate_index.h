// The search by an index component (abi/draft/index.h): rows that it finds get exact scores.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "retrieval/item_index.h"
#include "tessera/runtime.h"

namespace tessera::retrieval {

// How much an index finds of what the exact search finds.
struct IndexFigures {
  double recall = 0;  // share of the k best items that it finds; an item as good as the worst of these counts as found
  int64_t k = 0, queries = 0;
  double index_ms = 0, exact_ms = 0;  // means of one query
};
// "the index finds 98.7 % of the 10 best items (200 items as queries), in 0.1 ms instead of 2.3 ms"
std::string text_of(const IndexFigures& figures);

class ApproximateIndex {
 public:
  // Creates the component and builds it over `vectors`, of which `exact` is made too. Throws kNotFound if there is no
  // such component, and what it refuses.
  ApproximateIndex(const Runtime& runtime, const std::string& name, const Tensor& vectors);

  struct Scratch {
    ItemIndex::Scratch search;
    std::vector<int64_t> rows;
    std::vector<int32_t> sorted;
  };
  // [any-thread] Finds up to `k` items for one query, the best first, with the scores that exact.search() gives them.
  // Returns false if the index found fewer than k, or if the query is not finite, which is for the exact search. Throws
  // kInternal if it answers with rows that are no items.
  bool search(const ItemIndex& exact, std::span<const float> query, int64_t k, Scratch& scratch,
              std::span<int32_t> items, std::span<float> scores) const;

  // Searches for up to `queries` of the items' own vectors, evenly spread, in both ways.
  IndexFigures compared(const ItemIndex& exact, const Tensor& vectors, int64_t k, int64_t queries) const;

 private:
  std::shared_ptr<const Component> index_;
};

}  // namespace tessera::retrieval
