// Loads and stores vectors of rows of any type: float32 in registers; float32, half or bfloat16 in memory. Compiled per
// target.
#if defined(TESSERA_ROW_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ROW_VECTORS_INL_H_
#undef TESSERA_ROW_VECTORS_INL_H_
#else
#define TESSERA_ROW_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
using BitsTag = hn::Rebind<uint32_t, FloatTag>;
using ShortTag = hn::Rebind<uint16_t, FloatTag>;

// These targets have masked loads and float16; the others use a small buffer.
#undef TESSERA_MASKS_AND_HALF
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define TESSERA_MASKS_AND_HALF 1
#else
#define TESSERA_MASKS_AND_HALF 0
#endif
constexpr int kMaxLanes = 16;

struct Float {
  using Element = float;
  static constexpr Storage kStorage = Storage::kFloat32;
  static HWY_INLINE FloatVector load(const float* p) { return hn::LoadU(FloatTag(), p); }
};
struct Half {
  using Element = uint16_t;
  static constexpr Storage kStorage = Storage::kFloat16;
  static HWY_INLINE FloatVector load(const uint16_t* p) {
#if TESSERA_MASKS_AND_HALF
    const hn::Rebind<hwy::float16_t, FloatTag> d;
    return hn::PromoteTo(FloatTag(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    float wide[kMaxLanes];
    for (size_t i = 0; i < hn::Lanes(FloatTag()); ++i) wide[i] = half_to_float(p[i]);
    return hn::LoadU(FloatTag(), wide);
#endif
  }
};
struct BFloat16 {
  using Element = uint16_t;
  static constexpr Storage kStorage = Storage::kBFloat16;
  static HWY_INLINE FloatVector load(const uint16_t* p) {
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), hn::LoadU(ShortTag(), p))));
  }
};

// Loads the first n lanes (0 < n < all); the others are 0. It reads nothing beyond them.
template <class Row>
HWY_INLINE FloatVector load_tail(const typename Row::Element* p, int64_t n) {
#if TESSERA_MASKS_AND_HALF
  if constexpr (std::is_same_v<Row, Float>) {
    return hn::MaskedLoad(hn::FirstN(FloatTag(), static_cast<size_t>(n)), FloatTag(), p);
  }
#endif
  typename Row::Element buffer[kMaxLanes] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return Row::load(buffer);
}

// Rounds to nearest, ties to even.
HWY_INLINE void store_bfloat16(FloatVector v, uint16_t* p) {
  const BitsTag u;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fffu))));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u, 0x40u));
  const auto wide = hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(v)), nan, rounded);
  hn::StoreU(hn::DemoteTo(ShortTag(), hn::BitCast(hn::RebindToSigned<BitsTag>(), wide)), ShortTag(), p);
}
HWY_INLINE void store_half(FloatVector v, uint16_t* p) {
#if TESSERA_MASKS_AND_HALF
  const hn::Rebind<hwy::float16_t, FloatTag> d;
  hn::StoreU(hn::DemoteTo(d, v), d, reinterpret_cast<hwy::float16_t*>(p));
#else
  float wide[kMaxLanes];
  hn::StoreU(v, FloatTag(), wide);
  for (size_t i = 0; i < hn::Lanes(FloatTag()); ++i) p[i] = float_to_half(wide[i]);
#endif
}

// Stores elements [col, col + count) of a row of a 16-bit type. It is not inlined, because this is the rarer case.
inline HWY_NOINLINE void store_narrow(Storage to, const float* values, int64_t count, void* row, int64_t col) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  uint16_t* const out = static_cast<uint16_t*>(row) + col;
  int64_t at = 0;
  for (; at + lanes <= count; at += lanes) {
    const FloatVector v = hn::LoadU(FloatTag(), values + at);
    to == Storage::kFloat16 ? store_half(v, out + at) : store_bfloat16(v, out + at);
  }
  if (at == count) return;
  uint16_t buffer[kMaxLanes];
  const FloatVector v = load_tail<Float>(values + at, count - at);
  to == Storage::kFloat16 ? store_half(v, buffer) : store_bfloat16(v, buffer);
  for (int64_t i = 0; at + i < count; ++i) out[at + i] = buffer[i];
}

// Stores the first n lanes, and nothing beyond.
HWY_INLINE void store_tail(FloatVector v, float* p, int64_t n) {
#if TESSERA_MASKS_AND_HALF
  hn::BlendedStore(v, hn::FirstN(FloatTag(), static_cast<size_t>(n)), FloatTag(), p);
#else
  float buffer[kMaxLanes];
  hn::StoreU(v, FloatTag(), buffer);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
#endif
}

// Stores all lanes of the vectors, or the first `tail` lanes of a single one, to elements [col, ...) of a row.
template <int kVectors, bool kTail>
HWY_INLINE void store_columns(Storage to, const FloatVector (&v)[kVectors], void* row, int64_t col, int64_t tail) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
  if (HWY_UNLIKELY(to != Storage::kFloat32)) {
    float values[kVectors * kLanes];
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) hn::StoreU(v[k], FloatTag(), values + k * kLanes);
    store_narrow(to, values, kTail ? tail : kVectors * kLanes, row, col);
    return;
  }
  float* const out = static_cast<float*>(row) + col;
  if constexpr (kTail) {
    store_tail(v[0], out, tail);
  } else {
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) hn::StoreU(v[k], FloatTag(), out + k * kLanes);
  }
}

template <class Row>
HWY_INLINE void widen_row(const typename Row::Element* row, int64_t dim, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t col = 0;
  for (; col + lanes <= dim; col += lanes) hn::StoreU(Row::load(row + col), FloatTag(), out + col);
  if (col < dim) store_tail(load_tail<Row>(row + col, dim - col), out + col, dim - col);
}

// Prefetches kLines cache lines from `row` on, or if that is 0, the cache lines of `bytes` bytes.
template <int kLines, int kLocality>
HWY_INLINE void prefetch_row(const char* row, int64_t bytes) {
  if constexpr (kLines > 0) {
    HWY_UNROLL(16)
    for (int64_t line = 0; line < kLines; ++line) __builtin_prefetch(row + 64 * line, 0, kLocality);
  } else {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 0, kLocality);
    __builtin_prefetch(row + bytes - 1, 0, kLocality);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();
#endif
