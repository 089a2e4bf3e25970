// Forward over stored rows: sums bags of rows into output rows. Compiled per target.
//
// A block has as many stored bytes (values, for formats of whole floats) as a vector has lanes, and decodes to kVectors
// vectors. If a byte has several elements, there is one vector per position in the byte. Sums stay in that order and
// are interleaved once, when they are stored.
#if defined(TESSERA_QUANT_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_QUANT_POOL_INL_H_
#undef TESSERA_QUANT_POOL_INL_H_
#else
#define TESSERA_QUANT_POOL_INL_H_
#endif

#include "cpu/row_vectors-inl.h"
#include "quant/quant_ops.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kFloatLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));

// A tag for as many bytes as D, a tag of floats, has lanes.
template <class D>
using BytesOf = hn::Rebind<uint8_t, D>;

// Loads the first n bytes of a block (0 < n < all), followed by zeros. It reads nothing beyond them.
template <class D>
HWY_INLINE hn::Vec<BytesOf<D>> load_some_bytes(const uint8_t* p, int64_t n) {
  const BytesOf<D> d;
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN uint8_t buffer[kMaxLanes] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return hn::Load(d, buffer);
#endif
}

// Codes of kBits bits that follow a scale and a bias, in vectors with the tag D_.
template <int kBits, class D_>
struct Codes {
  using D = D_;
  static constexpr bool kScaled = true;
  static constexpr int kVectors = 8 / kBits;
  static constexpr int64_t kHeader = 4;
  static constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  static constexpr int64_t kBlockBytes = kLanes;

  static HWY_INLINE void decode(hn::Vec<BytesOf<D>> bytes, hn::Vec<D>* out) {
    const hn::Rebind<int32_t, D> d;
    auto v = hn::PromoteTo(d, bytes);
    HWY_UNROLL(4)
    for (int k = 0; k < kVectors; ++k) {
      out[k] = hn::ConvertTo(D(), k + 1 < kVectors ? hn::And(v, hn::Set(d, (1 << kBits) - 1)) : v);
      v = hn::ShiftRight<kBits % 8>(v);
    }
  }
  static HWY_INLINE void load(const uint8_t* p, hn::Vec<D>* out) { decode(hn::LoadU(BytesOf<D>(), p), out); }
  static HWY_INLINE void load_some(const uint8_t* p, int64_t bytes, hn::Vec<D>* out) {
    decode(load_some_bytes<D>(p, bytes), out);
  }
};

// Values of a type that row_vectors-inl.h knows.
template <class Row>
struct Values {
  using Element = typename Row::Element;
  using D = FloatTag;
  static constexpr bool kScaled = false;
  static constexpr int kVectors = 1;
  static constexpr int64_t kHeader = 0;
  static constexpr int64_t kLanes = kFloatLanes;
  static constexpr int64_t kBlockBytes = kFloatLanes * static_cast<int64_t>(sizeof(Element));

  static HWY_INLINE void load(const uint8_t* p, FloatVector* out) { load_some(p, kBlockBytes, out); }
  static HWY_INLINE void load_some(const uint8_t* p, int64_t bytes, FloatVector* out) {
    // Copies first, because rows may be at any address. The compiler drops the copy if vectors load unaligned anyway.
    Element buffer[kFloatLanes] = {};
    std::memcpy(buffer, p, static_cast<size_t>(bytes));
    out[0] = Row::load(buffer);
  }
};

// Floats of 8 bits: sign, 4 exponent bits with bias 7, 3 mantissa bits. They are shifted to float32's positions, and a
// factor of 2^120 corrects the bias.
struct Eights {
  using D = FloatTag;
  static constexpr bool kScaled = false;
  static constexpr int kVectors = 1;
  static constexpr int64_t kHeader = 0;
  static constexpr int64_t kLanes = kFloatLanes;
  static constexpr int64_t kBlockBytes = kFloatLanes;

  static HWY_INLINE void decode(hn::Vec<BytesOf<D>> bytes, FloatVector* out) {
    const hn::RebindToSigned<BitsTag> d;
    const auto v = hn::PromoteTo(d, bytes);
    const auto sign = hn::ShiftLeft<24>(hn::And(v, hn::Set(d, 0x80)));
    const auto magnitude = hn::ShiftLeft<20>(hn::And(v, hn::Set(d, 0x7f)));
    const auto scaled = hn::Mul(hn::BitCast(D(), magnitude), hn::Set(D(), 0x1p120f));
    out[0] = hn::Or(scaled, hn::BitCast(D(), sign));
  }
  static HWY_INLINE void load(const uint8_t* p, FloatVector* out) { decode(hn::LoadU(BytesOf<D>(), p), out); }
  static HWY_INLINE void load_some(const uint8_t* p, int64_t bytes, FloatVector* out) {
    decode(load_some_bytes<D>(p, bytes), out);
  }
};

struct ScaleBias {
  float scale, bias;
};
HWY_INLINE ScaleBias scale_bias_of(const uint8_t* row) {
  uint32_t bits;
  std::memcpy(&bits, row, 4);
#if TESSERA_MASKS_AND_HALF
  const hn::Full64<uint64_t> whole;
  const hn::Full128<float> floats;
  const auto both = hn::PromoteTo(floats, hn::BitCast(hn::Full64<hwy::float16_t>(), hn::Set(whole, uint64_t{bits})));
  return {hn::GetLane(both), hn::ExtractLane(both, 1)};
#else
  return {half_to_float(static_cast<uint16_t>(bits)), half_to_float(static_cast<uint16_t>(bits >> 16))};
#endif
}

// Prefetches the cache lines of a row, which may begin anywhere in a line.
HWY_INLINE void prefetch_stored(const char* row, int64_t bytes) {
  for (int64_t at = 0; at + 8 < bytes; at += 64) __builtin_prefetch(row + at, 0, 3);
  __builtin_prefetch(row + bytes - 1, 0, 3);
}

// One bag of `pool`.
struct StoredBag {
  int64_t begin;
  int64_t end;
  float factor;
  char* output;
};

// Stores kBlocks decoded blocks, in the order of their elements, to columns [col, col + count) of the output.
template <class Rows, int kBlocks>
HWY_INLINE void store_sums(Storage storage, const hn::Vec<typename Rows::D>* sums, void* output, int64_t col,
                           int64_t count) {
  const typename Rows::D d;
  constexpr int64_t kAll = kBlocks * Rows::kVectors * Rows::kLanes;
  HWY_ALIGN float buffer[kAll];
  const bool direct = storage == Storage::kFloat32 && count == kAll;
  float* const to = direct ? static_cast<float*>(output) + col : buffer;
  HWY_UNROLL(16)
  for (int b = 0; b < kBlocks; ++b) {
    const auto* v = sums + b * Rows::kVectors;
    float* const at = to + b * Rows::kVectors * Rows::kLanes;
    if constexpr (Rows::kVectors == 1) {
      hn::StoreU(v[0], d, at);
    } else if constexpr (Rows::kVectors == 2) {
      hn::StoreInterleaved2(v[0], v[1], d, at);
    } else {
      hn::StoreInterleaved4(v[0], v[1], v[2], v[3], d, at);
    }
  }
  if (direct) return;
  if (storage == Storage::kFloat32) {
    std::memcpy(static_cast<float*>(output) + col, buffer, static_cast<size_t>(count) * 4);
  } else {
    store_narrow(storage, buffer, count, output, col);
  }
}

// Computes blocks [first, first + kBlocks) of one bag. With kSome, it computes the `bytes` bytes after the last whole
// block, which have `count` elements.
template <class Rows, class Id, int kBlocks, bool kSome = false>
HWY_INLINE void pool_blocks(const StoredPool& pool, const StoredBag& bag, int64_t prefetch_end, int64_t first,
                            int64_t bytes = 0, int64_t count = kBlocks * Rows::kVectors * Rows::kLanes) {
  using Vector = hn::Vec<typename Rows::D>;
  const typename Rows::D d;
  constexpr int kSums = kBlocks * Rows::kVectors;
  const Id* const ids = static_cast<const Id*>(pool.ids);
  const int64_t data_bytes = pool.data_bytes;
  Vector sums[kSums];
  HWY_UNROLL(16)
  for (int k = 0; k < kSums; ++k) sums[k] = hn::Zero(d);
  for (int64_t p = bag.begin; p < bag.end; ++p) {
    const int64_t ahead = p + pool.ahead;
    if (HWY_LIKELY(ahead < prefetch_end)) {
      prefetch_stored(pool.table + static_cast<int64_t>(ids[ahead]) * pool.row_bytes, data_bytes);
    }
    const auto* const row =
        reinterpret_cast<const uint8_t*>(pool.table) + static_cast<int64_t>(ids[p]) * pool.row_bytes;
    const float weight = pool.weights == nullptr ? 1.0f : pool.weights[p];
    Vector scale = hn::Set(d, weight);
    Vector bias = hn::Zero(d);
    if constexpr (Rows::kScaled) {
      const ScaleBias both = scale_bias_of(row);
      scale = hn::Set(d, weight * both.scale);
      bias = hn::Set(d, weight * both.bias);
    }
    const uint8_t* const data = row + Rows::kHeader + first * Rows::kBlockBytes;
    HWY_UNROLL(16)
    for (int b = 0; b < kBlocks; ++b) {
      Vector x[Rows::kVectors];
      if constexpr (kSome) {
        Rows::load_some(data, bytes, x);
      } else {
        Rows::load(data + b * Rows::kBlockBytes, x);
      }
      HWY_UNROLL(4)
      for (int k = 0; k < Rows::kVectors; ++k) {
        Vector& sum = sums[b * Rows::kVectors + k];
        if constexpr (Rows::kScaled) sum = hn::Add(sum, bias);
        sum = hn::MulAdd(scale, x[k], sum);
      }
    }
  }
  if (bag.factor != 1) {
    HWY_UNROLL(16)
    for (int k = 0; k < kSums; ++k) sums[k] = hn::Mul(sums[k], hn::Set(d, bag.factor));
  }
  store_sums<Rows, kBlocks>(pool.storage, sums, bag.output, first * Rows::kVectors * Rows::kLanes, count);
}

// Computes all columns of one bag of any width.
template <class Rows, class Id>
HWY_INLINE void pool_any_blocks(const StoredPool& pool, const StoredBag& bag) {
  constexpr int64_t kPerBlock = Rows::kVectors * Rows::kLanes;
  const int64_t bytes = pool.data_bytes - Rows::kHeader;
  const int64_t whole = bytes / Rows::kBlockBytes;
  int64_t block = 0;
  int64_t prefetch_end = pool.ids_end;  // only the first run of columns prefetches, and it prefetches whole rows
  constexpr int kMany = 8 / Rows::kVectors;
  for (; block + kMany <= whole; block += kMany, prefetch_end = 0) {
    pool_blocks<Rows, Id, kMany>(pool, bag, prefetch_end, block);
  }
  for (; block < whole; ++block, prefetch_end = 0) pool_blocks<Rows, Id, 1>(pool, bag, prefetch_end, block);
  const int64_t rest = bytes - whole * Rows::kBlockBytes;
  if (rest > 0) pool_blocks<Rows, Id, 1, true>(pool, bag, prefetch_end, block, rest, pool.dim - whole * kPerBlock);
}

// kBlocks is the exact number of blocks per row; 0 means any dim.
template <class Rows, class Id, int kBlocks>
void pool_stored(const StoredPool& pool) {
  const Id* const ids = static_cast<const Id*>(pool.ids);
  int64_t begin = pool.first(0);
  for (int64_t p = begin; p < std::min(begin + pool.ahead, pool.ids_end); ++p) {
    prefetch_stored(pool.table + static_cast<int64_t>(ids[p]) * pool.row_bytes, pool.data_bytes);
  }
  char* output = pool.output;
  const int32_t* const rows = pool.rows;
  for (int64_t b = 0; b < pool.bags; ++b, output += pool.output_bytes) {
    if (rows != nullptr) output = pool.output_of(b);
    const int64_t end = pool.first(b + 1);
    const StoredBag bag{begin, end, pool.mean && end > begin ? 1.0f / static_cast<float>(end - begin) : 1.0f, output};
    if constexpr (kBlocks > 0) {
      pool_blocks<Rows, Id, kBlocks>(pool, bag, pool.ids_end, 0);
    } else {
      pool_any_blocks<Rows, Id>(pool, bag);
    }
    begin = end;
  }
}

template <class Rows, class Id>
StoredPoolFunction stored_for_dim(int64_t dim) {
  // Without masks this is the portable variant, which only needs to be correct; code for every dim is not worthwhile.
  if constexpr (TESSERA_MASKS_AND_HALF != 0 && Rows::kScaled) {
    constexpr int64_t kPerBlock = Rows::kVectors * Rows::kLanes;
    constexpr int kMost = kFloatLanes == 16 ? 16 : 8;  // vectors that stay in registers
    const int64_t blocks = dim % kPerBlock == 0 ? dim / kPerBlock : 0;
    if (blocks == 1) return pool_stored<Rows, Id, 1>;
    if constexpr (2 * Rows::kVectors <= kMost) {
      if (blocks == 2) return pool_stored<Rows, Id, 2>;
    }
    if constexpr (4 * Rows::kVectors <= kMost) {
      if (blocks == 4) return pool_stored<Rows, Id, 4>;
    }
    if constexpr (8 * Rows::kVectors <= kMost) {
      if (blocks == 8) return pool_stored<Rows, Id, 8>;
    }
  }
  return pool_stored<Rows, Id, 0>;
}
// Rows that are shorter than a block use blocks of half the width if they fill one.
template <int kBits, class Id>
StoredPoolFunction codes_for_dim(int64_t dim) {
  using Narrow = Codes<kBits, hn::Half<FloatTag>>;
  if constexpr (TESSERA_MASKS_AND_HALF != 0) {
    if (dim == Narrow::kVectors * Narrow::kLanes) return pool_stored<Narrow, Id, 1>;
  }
  return stored_for_dim<Codes<kBits, FloatTag>, Id>(dim);
}
template <int kBits>
StoredPoolFunction codes_for_ids(bool wide_ids, int64_t dim) {
  return wide_ids ? codes_for_dim<kBits, int64_t>(dim) : codes_for_dim<kBits, int32_t>(dim);
}
template <class Rows>
StoredPoolFunction stored_for_ids(bool wide_ids, int64_t dim) {
  return wide_ids ? stored_for_dim<Rows, int64_t>(dim) : stored_for_dim<Rows, int32_t>(dim);
}
StoredPoolFunction choose_quant_pool(sdk::RowFormat format, bool wide_ids, int64_t dim) {
  switch (format) {
    case sdk::RowFormat::kInt8:
      return codes_for_ids<8>(wide_ids, dim);
    case sdk::RowFormat::kInt4:
      return codes_for_ids<4>(wide_ids, dim);
    case sdk::RowFormat::kInt2:
      return codes_for_ids<2>(wide_ids, dim);
    case sdk::RowFormat::kFloat16:
      return stored_for_ids<Values<Half>>(wide_ids, dim);
    case sdk::RowFormat::kFloat8:
      return stored_for_ids<Eights>(wide_ids, dim);
    case sdk::RowFormat::kFloat32:
      break;
  }
  return stored_for_ids<Values<Float>>(wide_ids, dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();
#endif
