// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/index.h - base class of an index: finds vectors with large dot products.
//
// abi/draft/index.h is the specification. The host computes the scores of the rows that an index finds.
//
//   class Buckets : public Index {
//     void build(std::span<const float> vectors, int64_t dim) override { ... }
//     void find(std::span<const float> query, std::span<int64_t> rows) const override { ... }
//   };
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tessera/abi/draft/index.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"

namespace tessera::sdk {
inline namespace v1 {

class Index {
 public:
  virtual ~Index() = default;
  // `vectors` is [items, dim]; it is valid only during the call.
  virtual void build(std::span<const float> vectors, int64_t dim) = 0;
  // [any-thread] Writes distinct rows of the items, in any order. `rows` is filled with -1 before the call.
  virtual void find(std::span<const float> query, std::span<int64_t> rows) const = 0;

  static constexpr const char* kKind = TSR_INDEX_KIND;
  template <class C>
  static const tsr_index table;

 private:
  template <class C>
  static Index& of(void* self) {
    return *static_cast<C*>(self);
  }
  template <class C>
  static tsr_code build_slot(void* self, const tsr_index_items* given, tsr_error* err) noexcept {
    return guard(err, [&] {
      const tsr_index_items items = read_struct(*given);
      check_flags(items.flags, 0, "the items");
      Index& index = of<C>(self);
      if (index.dim_ != 0) fail(TSR_FAILED_PRECONDITION, "the index is built already");
      if (items.count < 1 || items.dim < 1)
        fail(TSR_INVALID_ARGUMENT, "an index takes at least 1 item of at least 1 value, not ", items.count, " of ",
             items.dim);
      index.build({items.vectors, static_cast<size_t>(items.count * items.dim)}, items.dim);
      index.dim_ = items.dim;
      index.items_ = items.count;
    });
  }
  template <class C>
  static tsr_code search_slot(void* self, const tsr_index_search* given, tsr_error* err) noexcept {
    return guard(err, [&] {
      const tsr_index_search s = read_struct(*given);
      check_flags(s.flags, 0, "the search");
      const Index& index = of<C>(self);
      if (index.dim_ == 0) fail(TSR_FAILED_PRECONDITION, "the index is not built yet");
      if (s.k < 1 || s.k > index.items_)
        fail(TSR_INVALID_ARGUMENT, "a search is for 1 to ", index.items_, " items, not ", s.k);
      const auto dim = static_cast<size_t>(index.dim_), k = static_cast<size_t>(s.k);
      for (size_t q = 0; q < static_cast<size_t>(s.count); ++q) {
        const std::span<int64_t> rows(s.rows + q * k, k);
        std::fill(rows.begin(), rows.end(), -1);
        index.find({s.queries + q * dim, dim}, rows);
      }
    });
  }

  int64_t dim_ = 0, items_ = 0;  // 0 until the index is built
};

template <class C>
constexpr tsr_index Index::table = {sizeof(tsr_index), 0, &build_slot<C>, &search_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
