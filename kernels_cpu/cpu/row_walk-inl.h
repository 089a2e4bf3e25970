// Backward: sums each row's gradients in order of position, for an update or for output. Compiled per target.
#if defined(TESSERA_ROW_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ROW_WALK_INL_H_
#undef TESSERA_ROW_WALK_INL_H_
#else
#define TESSERA_ROW_WALK_INL_H_
#endif

#include "cpu/row_block.h"
#include "cpu/row_gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

// Reads the entries of a walk. G is the type of gradients. kLines > 0 is the number of cache lines per gradient and per
// row.
template <class G, Source kSource, int kLines>
class Walker : Gradients<G, kSource> {
  using Base = Gradients<G, kSource>;
  using Element = typename G::Element;
  using Entry = typename Base::Entry;
  using Base::address, Base::factor, Base::clamped, Base::walk_, Base::output_rows_;
  static constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));

 public:
  explicit HWY_INLINE Walker(const Walk& walk)
      : Base(walk),
        entries_(entries_of(walk)),
        count_(walk.count),
        gradient_bytes_(walk.dim * static_cast<int64_t>(sizeof(Element))) {}

  HWY_INLINE void run() {
    RowBlock* const block = walk_.block;
    const int64_t ahead = walk_.ahead;
    for (int64_t i = 0; i < std::min(ahead, count_); ++i) prefetch(i, block);
    int64_t rows_out = 0;
    for (int64_t begin = 0; begin < count_;) {
      const uint32_t row = entries_[begin].row;
      int64_t end = begin;
      do {
        if (HWY_LIKELY(end + ahead < count_)) prefetch(end + ahead, block);
        ++end;
      } while (end < count_ && entries_[end].row == row);
      if (kSource == Source::kFull && walk_.grad_weights != nullptr) weight_gradients(begin, end);
      if (block != nullptr) {
        block->add(row, gradient(begin, end, block));
      } else {
        sum(begin, end, walk_.out_values + rows_out * walk_.dim);
        walk_.out_rows[rows_out++] = row;
      }
      begin = end;
    }
    if (block != nullptr) block->flush();
  }

 private:
  static const Entry* entries_of(const Walk& walk) {
    if constexpr (kSource == Source::kFull) {
      return walk.full;
    } else {
      return walk.plain;
    }
  }

  HWY_INLINE void prefetch(int64_t i, const RowBlock* block) const {
    const Entry& e = entries_[i];
    prefetch_row<kLines, 3>(address(e), gradient_bytes_);
    if (block != nullptr) block->prefetch<kLines>(e.row);
  }

  // For MAX, keeps only the columns in which the entry has the maximum.
  HWY_INLINE FloatVector won(const Entry& e, int64_t col, int64_t n, FloatVector g) const {
    if constexpr (kSource == Source::kFull) {
      const OutputRow& output_row = walk_.output_rows[e.output_row];
      if (output_row.winners != nullptr) {
        const hn::Rebind<int32_t, FloatTag> di;
        const float* winners = reinterpret_cast<const float*>(output_row.winners) + col;
        const FloatVector bits = n == kLanes ? Float::load(winners) : load_tail<Float>(winners, n);
        const auto mine = hn::Set(di, static_cast<int32_t>(e.position - output_row.begin));
        return hn::IfThenElseZero(hn::RebindMask(FloatTag(), hn::Eq(hn::BitCast(di, bits), mine)), g);
      }
    }
    return g;
  }

  template <int kVectors, bool kTail>
  HWY_INLINE void sum_columns(int64_t begin, int64_t end, int64_t col, int64_t tail, float* out) const {
    const FloatTag d;
    FloatVector sums[kVectors];
    HWY_UNROLL(8)
    for (int k = 0; k < kVectors; ++k) sums[k] = hn::Zero(d);
    for (int64_t i = begin; i < end; ++i) {
      const Entry& e = entries_[i];
      const Element* g = reinterpret_cast<const Element*>(address(e)) + col;
      float weight = factor(e);
      if constexpr (kSource == Source::kFull) weight *= e.weight;
      HWY_UNROLL(8)
      for (int k = 0; k < kVectors; ++k) {
        const FloatVector x = clamped(kTail ? load_tail<G>(g, tail) : G::load(g + k * kLanes));
        sums[k] = hn::MulAdd(won(e, col + k * kLanes, kTail ? tail : kLanes, x), hn::Set(d, weight), sums[k]);
      }
    }
    store_columns<kVectors, kTail>(Storage::kFloat32, sums, out, col, tail);
  }

  HWY_INLINE void sum(int64_t begin, int64_t end, float* out) const {
    const int64_t dim = walk_.dim;
    int64_t col = 0;
    for (; col + 8 * kLanes <= dim; col += 8 * kLanes) sum_columns<8, false>(begin, end, col, 0, out);
    for (; col + 4 * kLanes <= dim; col += 4 * kLanes) sum_columns<4, false>(begin, end, col, 0, out);
    for (; col + kLanes <= dim; col += kLanes) sum_columns<1, false>(begin, end, col, 0, out);
    if (col < dim) sum_columns<1, true>(begin, end, col, dim - col, out);
  }

  // Returns the sum of the row's gradients: in the block's memory for it, or if it is a single gradient, in place.
  HWY_INLINE const float* gradient(int64_t begin, int64_t end, const RowBlock* block) const {
    if constexpr (std::is_same_v<G, Float> && kSource != Source::kFull) {
      const Entry& e = entries_[begin];
      if (HWY_LIKELY(end - begin == 1 && walk_.max_gradient == 0 && factor(e) == 1)) {
        return reinterpret_cast<const float*>(address(e));
      }
    }
    float* const room = block->next_gradient();
    sum(begin, end, room);
    return room;
  }

  template <class Row>
  HWY_INLINE float dot(const Entry& e, const typename Row::Element* row) const {
    const Element* g = reinterpret_cast<const Element*>(address(e));
    FloatVector sum = hn::Zero(FloatTag());
    int64_t col = 0;
    for (; col + kLanes <= walk_.dim; col += kLanes) {
      sum = hn::MulAdd(won(e, col, kLanes, clamped(G::load(g + col))), Row::load(row + col), sum);
    }
    if (col < walk_.dim) {
      const int64_t tail = walk_.dim - col;
      const FloatVector x = won(e, col, tail, clamped(load_tail<G>(g + col, tail)));
      sum = hn::MulAdd(x, load_tail<Row>(row + col, tail), sum);
    }
    return hn::GetLane(hn::SumOfLanes(FloatTag(), sum)) * factor(e);
  }

  // Computes the gradients of the ids' weights, and is called before the row changes.
  void weight_gradients(int64_t begin, int64_t end) const {
    if constexpr (kSource == Source::kFull) {
      for (int64_t i = begin; i < end; ++i) {
        const Entry& e = entries_[i];
        const char* row = walk_.table + static_cast<int64_t>(e.row) * walk_.row_bytes;
        float& out = walk_.grad_weights[e.position];
        if (walk_.row_storage == Storage::kFloat32) {
          out = dot<Float>(e, reinterpret_cast<const float*>(row));
        } else if (walk_.row_storage == Storage::kFloat16) {
          out = dot<Half>(e, reinterpret_cast<const uint16_t*>(row));
        } else {
          out = dot<BFloat16>(e, reinterpret_cast<const uint16_t*>(row));
        }
      }
    }
  }

  // Copies of the walk's members, so that the compiler keeps them in registers across writes to memory.
  const Entry* const entries_;
  const int64_t count_;
  const int64_t gradient_bytes_;
};

template <class G, int kLines>
void walk_plain(const Walk& w) {
  if (w.output_rows != nullptr) return Walker<G, Source::kOutputRows, kLines>(w).run();
  Walker<G, Source::kFormula, kLines>(w).run();
}
template <class G>
void walk_any(const Walk& w) {
  if (w.full != nullptr) return Walker<G, Source::kFull, 0>(w).run();
  walk_plain<G, 0>(w);
}
void walk(const Walk& w) {
  if (w.storage == Storage::kFloat16) return walk_any<Half>(w);
  if (w.storage == Storage::kBFloat16) return walk_any<BFloat16>(w);
  if (TESSERA_MASKS_AND_HALF != 0 && w.row_storage == Storage::kFloat32 && w.full == nullptr) {
    if (w.dim == 16) return walk_plain<Float, 1>(w);
    if (w.dim == 32) return walk_plain<Float, 2>(w);
    if (w.dim == 64) return walk_plain<Float, 4>(w);
    if (w.dim == 128) return walk_plain<Float, 8>(w);
  }
  walk_any<Float>(w);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();
#endif
