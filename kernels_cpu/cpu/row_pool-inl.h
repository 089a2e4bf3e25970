// Forward: sums bags of rows into output rows. Compiled per target.
#if defined(TESSERA_ROW_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ROW_POOL_INL_H_
#undef TESSERA_ROW_POOL_INL_H_
#else
#define TESSERA_ROW_POOL_INL_H_
#endif

#include "cpu/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

// The most accumulators that stay in registers: AVX-512 has 32 registers, the others 16.
constexpr int kMaxVectors = HWY_TARGET == HWY_AVX3 ? 16 : 8;

// One bag of `pool`.
struct Bag {
  int64_t begin;
  int64_t end;
  float divisor;
  char* output;
};

// Computes columns [col, col + kVectors vectors) of one bag; with kTail the first `tail` lanes of one vector.
template <class Row, class Id, bool kWeighted, int kVectors, int kLines, bool kTail = false>
HWY_INLINE void pool_columns(const Pool& pool, const Bag& bag, int64_t prefetch_end, int64_t col, int64_t tail = 0) {
  using Element = typename Row::Element;
  const FloatTag d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  const Id* const ids = static_cast<const Id*>(pool.ids);
  const char* const table = pool.table + col * static_cast<int64_t>(sizeof(Element));
  FloatVector sum[kVectors];
  HWY_UNROLL(16)
  for (int k = 0; k < kVectors; ++k) sum[k] = hn::Zero(d);
  for (int64_t p = bag.begin; p < bag.end; ++p) {
    const int64_t ahead = p + pool.ahead;
    if (HWY_LIKELY(ahead < prefetch_end)) {
      const char* const next = pool.table + static_cast<int64_t>(ids[ahead]) * pool.row_bytes;
      if ((kLines == 0 || kLines >= 8) && pool.to_l2) {
        prefetch_row<kLines, 2>(next, pool.row_bytes);
      } else {
        prefetch_row<kLines, 3>(next, pool.row_bytes);
      }
    }
    const Element* const row = reinterpret_cast<const Element*>(table + static_cast<int64_t>(ids[p]) * pool.row_bytes);
    const FloatVector weight = kWeighted ? hn::Set(d, pool.weights[p]) : hn::Zero(d);
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) {
      const FloatVector x = kTail ? load_tail<Row>(row, tail) : Row::load(row + k * kLanes);
      sum[k] = kWeighted ? hn::MulAdd(weight, x, sum[k]) : hn::Add(sum[k], x);
    }
  }
  if (bag.divisor != 1) {
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) sum[k] = hn::Div(sum[k], hn::Set(d, bag.divisor));
  }
  store_columns<kVectors, kTail>(pool.storage, sum, bag.output, col, tail);
}

// Computes all columns of one bag of any width, in runs of as many vectors as fit into registers.
template <class Row, class Id, bool kWeighted>
HWY_INLINE void pool_any_dim(const Pool& pool, const Bag& bag) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  int64_t col = 0;
  int64_t prefetch_end = pool.ids_end;  // only the first run of columns prefetches, and it prefetches whole rows
  const auto columns = [&]<int kVectors>() HWY_ATTR {
    for (; col + kVectors * kLanes <= pool.dim; col += kVectors * kLanes) {
      pool_columns<Row, Id, kWeighted, kVectors, 0>(pool, bag, prefetch_end, col);
      prefetch_end = 0;
    }
  };
  columns.template operator()<8>();
  columns.template operator()<4>();
  columns.template operator()<1>();
  if (col < pool.dim) pool_columns<Row, Id, kWeighted, 1, 0, true>(pool, bag, prefetch_end, col, pool.dim - col);
}

// kVectors is the exact number of vectors per row; 0 means any dim.
template <class Row, class Id, bool kWeighted, int kVectors>
void pool_bags(const Pool& pool) {
  constexpr int kRowBytes = kVectors * static_cast<int>(hn::MaxLanes(FloatTag()) * sizeof(typename Row::Element));
  constexpr int kLines = kRowBytes % 64 == 0 ? kRowBytes / 64 : 0;
  const Id* const ids = static_cast<const Id*>(pool.ids);
  int64_t begin = pool.first(0);
  for (int64_t p = begin; p < std::min(begin + pool.ahead, pool.ids_end); ++p) {
    prefetch_row<kLines, 3>(pool.table + static_cast<int64_t>(ids[p]) * pool.row_bytes, pool.row_bytes);
  }
  char* output = pool.output;
  const int32_t* const rows = pool.rows;
  for (int64_t b = 0; b < pool.bags; ++b, output += pool.output_bytes) {
    if (rows != nullptr) output = pool.output_of(b);
    const int64_t end = pool.first(b + 1);
    const Bag bag{begin, end, pool.mean && end > begin ? static_cast<float>(end - begin) : 1.0f, output};
    if constexpr (kVectors > 0) {
      pool_columns<Row, Id, kWeighted, kVectors, kLines>(pool, bag, pool.ids_end, 0);
    } else {
      pool_any_dim<Row, Id, kWeighted>(pool, bag);
    }
    begin = end;
  }
}

template <class Row, class Id, bool kWeighted>
PoolFunction pool_for_dim(int64_t dim) {
  // Without masks this is the portable variant, which only needs to be correct; code for every dim is not worthwhile.
  constexpr bool kEveryDim = TESSERA_MASKS_AND_HALF != 0;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  constexpr int kWidest = kMaxVectors == 16 ? 16 : 0;
  if constexpr (kEveryDim) {
    const int64_t vectors = dim % kLanes == 0 ? dim / kLanes : 0;
    if (vectors == 1) return pool_bags<Row, Id, kWeighted, 1>;
    if (vectors == 2) return pool_bags<Row, Id, kWeighted, 2>;
    if (vectors == 4) return pool_bags<Row, Id, kWeighted, 4>;
    if (vectors == 8) return pool_bags<Row, Id, kWeighted, 8>;
    if (vectors == 16) return pool_bags<Row, Id, kWeighted, kWidest>;
  }
  return pool_bags<Row, Id, kWeighted, 0>;
}
template <class Row>
PoolFunction pool_for_ids(bool wide_ids, bool weighted, int64_t dim) {
  if (wide_ids) return weighted ? pool_for_dim<Row, int64_t, true>(dim) : pool_for_dim<Row, int64_t, false>(dim);
  return weighted ? pool_for_dim<Row, int32_t, true>(dim) : pool_for_dim<Row, int32_t, false>(dim);
}
PoolFunction choose_pool(Storage rows, bool wide_ids, bool weighted, int64_t dim) {
  if (rows == Storage::kFloat32) return pool_for_ids<Float>(wide_ids, weighted, dim);
  if (rows == Storage::kFloat16) return pool_for_ids<Half>(wide_ids, weighted, dim);
  return pool_for_ids<BFloat16>(wide_ids, weighted, dim);
}

// Computes columns [col, col + n) of one bag. `winners` is the bag's, or NULL.
template <class Row, class Id>
HWY_INLINE void max_columns(const Pool& pool, const Bag& bag, int64_t col, int64_t n, int32_t* winners) {
  using Element = typename Row::Element;
  const FloatTag d;
  const hn::Rebind<int32_t, FloatTag> di;
  const bool whole = n == static_cast<int64_t>(hn::Lanes(d));
  FloatVector most = hn::Zero(d);
  auto winner = hn::Set(di, -1);
  for (int64_t p = bag.begin; p < bag.end; ++p) {
    const int64_t id = static_cast<const Id*>(pool.ids)[p];
    const Element* row = reinterpret_cast<const Element*>(pool.table + id * pool.row_bytes) + col;
    const FloatVector x = whole ? Row::load(row) : load_tail<Row>(row, n);
    const auto wins = p == bag.begin ? hn::Eq(hn::Zero(d), hn::Zero(d)) : hn::Gt(x, most);
    most = hn::IfThenElse(wins, x, most);
    winner = hn::IfThenElse(hn::RebindMask(di, wins), hn::Set(di, static_cast<int32_t>(p - bag.begin)), winner);
  }
  const FloatVector results[1] = {most};
  const FloatVector places[1] = {hn::BitCast(d, winner)};
  if (whole) {
    store_columns<1, false>(pool.storage, results, bag.output, col, n);
    if (winners != nullptr) store_columns<1, false>(Storage::kFloat32, places, winners, col, n);
  } else {
    store_columns<1, true>(pool.storage, results, bag.output, col, n);
    if (winners != nullptr) store_columns<1, true>(Storage::kFloat32, places, winners, col, n);
  }
}

template <class Row, class Id>
void max_bags(const Pool& pool, int32_t* winners) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  for (int64_t b = 0; b < pool.bags; ++b) {
    const Bag bag{pool.first(b), pool.first(b + 1), 1, pool.output_of(b)};
    for (int64_t col = 0; col < pool.dim; col += lanes) {
      max_columns<Row, Id>(pool, bag, col, std::min(lanes, pool.dim - col),
                           winners == nullptr ? nullptr : winners + b * pool.dim);
    }
  }
}

void pool_max(const Pool& pool, Storage rows, bool wide_ids, int32_t* winners) {
  if (rows == Storage::kFloat32) return (wide_ids ? max_bags<Float, int64_t> : max_bags<Float, int32_t>)(pool, winners);
  if (rows == Storage::kFloat16) return (wide_ids ? max_bags<Half, int64_t> : max_bags<Half, int32_t>)(pool, winners);
  (wide_ids ? max_bags<BFloat16, int64_t> : max_bags<BFloat16, int32_t>)(pool, winners);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();
#endif
