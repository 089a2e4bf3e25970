// If Highway is available, its foreach_target compiles this file once per target; otherwise plain loops are used.
#include "retrieval/dots.h"

#ifdef TESSERA_HIGHWAY
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "retrieval/dots.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::retrieval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, kBeside>;
using Vec = hn::Vec<Lanes>;
constexpr size_t kLanes = HWY_MIN(HWY_LANES(float), kBeside);  // for targets whose vectors have a fixed size

// Multiplies kVectors vectors of one block, or of two consecutive blocks, with kCount queries.
template <size_t kCount, size_t kVectors>
HWY_INLINE void some_products(const float* queries, const float* items, size_t dim, size_t apart, float* out,
                              size_t out_apart, size_t stride) {
  const Lanes d;
  Vec sums[kVectors][kCount];
  for (auto& vector : sums) {
    for (Vec& sum : vector) sum = hn::Zero(d);
  }
  for (size_t c = 0; c < dim; ++c) {
    Vec x[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      x[v] = hn::LoadU(d, items + v * apart + c * kBeside);
      // prefetches later blocks; harmless after the last one
      hwy::Prefetch(items + (v + 2 * kVectors) * apart + c * kBeside);
    }
    for (size_t q = 0; q < kCount; ++q) {
      const Vec value = hn::Set(d, queries[c * kQueries + q]);
      for (size_t v = 0; v < kVectors; ++v) sums[v][q] = hn::MulAdd(x[v], value, sums[v][q]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    for (size_t q = 0; q < kCount; ++q) hn::StoreU(sums[v][q], d, out + q * stride + v * out_apart);
  }
}

template <size_t kCount>
void products_of(const float* queries, const ItemBlocks& in, float* out, size_t stride) {
  const size_t block = in.dim * kBeside;
  // Uses as many chains as hide the latency of one, within half of the registers of narrow vectors.
  constexpr size_t kBlocks = kCount == 1 ? 4 : kLanes == kBeside ? 2 : 1;
  size_t b = 0;
  for (; b + kBlocks <= in.blocks; b += kBlocks) {
    for (size_t lane = 0; lane < kBeside; lane += kLanes)
      some_products<kCount, kBlocks>(queries, in.items + b * block + lane, in.dim, block, out + b * kBeside + lane,
                                     kBeside, stride);
  }
  for (; b < in.blocks; ++b) {
    for (size_t lane = 0; lane < kBeside; lane += kLanes)
      some_products<kCount, 1>(queries, in.items + b * block + lane, in.dim, block, out + b * kBeside + lane, kBeside,
                               stride);
  }
}

void products(const float* queries, size_t count, const ItemBlocks& items, float* out, size_t stride) {
  if (count == 1) return products_of<1>(queries, items, out, stride);
  if (count <= 4) return products_of<4>(queries, items, out, stride);
  products_of<kQueries>(queries, items, out, stride);
}

size_t next_above(const float* values, size_t from, size_t count, float bound) {
  const Lanes d;
  for (; from % kLanes != 0; ++from) {
    if (values[from] > bound) return from;
  }
  const Vec least = hn::Set(d, bound);
  for (; from < count; from += kLanes) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Gt(hn::LoadU(d, values + from), least));
    if (at >= 0) return from + static_cast<size_t>(at);
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::retrieval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::retrieval {

HWY_EXPORT(products);
HWY_EXPORT(next_above);
SearchLoops best_search_loops() {
  return {[](const float* queries, size_t count, const ItemBlocks& items, float* out, size_t stride) {
            HWY_DYNAMIC_DISPATCH(products)
            (queries, count, items, out, stride);
          },
          [](const float* values, size_t from, size_t count, float bound) {
            return HWY_DYNAMIC_DISPATCH(next_above)(values, from, count, bound);
          }};
}

}  // namespace tessera::retrieval
#endif
#else
namespace tessera::retrieval {

SearchLoops best_search_loops() {
  return {[](const float* queries, size_t count, const ItemBlocks& in, float* out, size_t stride) {
            for (size_t q = 0; q < count; ++q) {
              for (size_t i = 0; i < in.blocks * kBeside; ++i) {
                const float* const item = in.items + i / kBeside * kBeside * in.dim + i % kBeside;
                float sum = 0;
                for (size_t c = 0; c < in.dim; ++c) sum += item[c * kBeside] * queries[c * kQueries + q];
                out[q * stride + i] = sum;
              }
            }
          },
          [](const float* values, size_t from, size_t count, float bound) {
            while (from < count && !(values[from] > bound)) ++from;
            return from;
          }};
}

}  // namespace tessera::retrieval
#endif
