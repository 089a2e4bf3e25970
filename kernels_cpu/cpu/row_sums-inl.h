// Backward for tables with few rows: adds gradients to the sums of their rows in order of arrival, and sorts nothing.
// Compiled per target.
#if defined(TESSERA_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ROW_SUMS_INL_H_
#undef TESSERA_ROW_SUMS_INL_H_
#else
#define TESSERA_ROW_SUMS_INL_H_
#endif

#include "cpu/row_gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

// Sums of float32 gradients. kLines > 0: cache lines per row of sums.
template <Source kSource, int kLines>
class Summer : Gradients<Float, kSource> {
  using Base = Gradients<Float, kSource>;
  using Base::address, Base::factor, Base::clamped, Base::walk_;
  static constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));

 public:
  HWY_INLINE Summer(const Walk& walk, const RowSums& sums)
      : Base(walk), dim_(kLines > 0 ? int64_t{16} * kLines : walk.dim), sums_(sums) {}

  uint32_t count() const { return sums_.count; }

  template <class Id>
  HWY_INLINE void add_run(const IdRun& run) {
    const Id* const ids = static_cast<const Id*>(run.ids);
    int64_t p = run.begin;
    for (int64_t bag = 0; bag < run.bags; ++bag) {
      const PlainEntry e{0, static_cast<uint32_t>(run.first_output_row + bag)};
      if (bag + kBagsAhead < run.bags) prefetch(e.output_row + kBagsAhead);
      const int64_t end = run.first(bag + 1);
      if (p < end) add(e, ids + p, end - p);
      p = end;
    }
  }

  HWY_INLINE void add_entries(const PlainEntry* entries, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (i + kEntriesAhead < count) prefetch(entries[i + kEntriesAhead].output_row);
      add(entries[i], &entries[i].row, 1);
    }
  }

 private:
  static constexpr uint32_t kBagsAhead = 4, kEntriesAhead = 16;

  HWY_INLINE void prefetch(uint32_t output_row) const {
    prefetch_row<0, 3>(address({0, output_row}), dim_ * static_cast<int64_t>(sizeof(float)));
  }

  // It has no branch, because a branch could not be predicted here.
  HWY_INLINE float* sum_of(uint32_t row) {
    const uint32_t at = row >> sums_.low;
    uint32_t number = sums_.number_of[at];
    const bool fresh = number == 0;
    sums_.rows[sums_.count] = at;
    sums_.count += fresh ? 1 : 0;
    number = fresh ? sums_.count : number;
    sums_.number_of[at] = number;
    return sums_.values + static_cast<int64_t>(number - 1) * dim_;
  }

  // Adds the gradient of `e` to the sums of `count` rows.
  template <class Id>
  HWY_INLINE void add(const PlainEntry& e, const Id* rows, int64_t count) {
    const float* const g = reinterpret_cast<const float*>(address(e));
    const FloatVector weight = hn::Set(FloatTag(), factor(e));
    if constexpr (kLines > 0) {
      constexpr int64_t kVectors = int64_t{16} * kLines / kLanes;
      FloatVector x[kVectors];
      HWY_UNROLL(8)
      for (int64_t k = 0; k < kVectors; ++k) x[k] = clamped(Float::load(g + k * kLanes));
      for (int64_t i = 0; i < count; ++i) {
        float* const sum = sum_of(static_cast<uint32_t>(rows[i]));
        HWY_UNROLL(8)
        for (int64_t k = 0; k < kVectors; ++k) add_to(sum + k * kLanes, x[k], weight);
      }
      return;
    }
    const int64_t tail = dim_ % kLanes;
    for (int64_t i = 0; i < count; ++i) {
      float* const sum = sum_of(static_cast<uint32_t>(rows[i]));
      for (int64_t col = 0; col + kLanes <= dim_; col += kLanes) {
        add_to(sum + col, clamped(Float::load(g + col)), weight);
      }
      if (tail == 0) continue;
      float* const last = sum + dim_ - tail;
      const FloatVector x = clamped(load_tail<Float>(g + dim_ - tail, tail));
      store_tail(hn::MulAdd(x, weight, load_tail<Float>(last, tail)), last, tail);
    }
  }
  static HWY_INLINE void add_to(float* sum, FloatVector x, FloatVector weight) {
    hn::StoreU(hn::MulAdd(x, weight, hn::LoadU(FloatTag(), sum)), FloatTag(), sum);
  }

  const int64_t dim_;
  RowSums sums_;
};

template <Source kSource, int kLines>
void add_ids(const Walk& w, const IdRun& run, RowSums* sums) {
  Summer<kSource, kLines> summer(w, *sums);
  run.wide_ids ? summer.template add_run<int64_t>(run) : summer.template add_run<int32_t>(run);
  sums->count = summer.count();
}
template <Source kSource>
void add_all(const Walk& w, const IdRun* run, RowSums* sums) {
  if (run == nullptr) {
    Summer<kSource, 0> summer(w, *sums);
    summer.add_entries(w.plain, w.count);
    sums->count = summer.count();
    return;
  }
  if constexpr (TESSERA_MASKS_AND_HALF != 0) {
    if (w.dim == 16) return add_ids<kSource, 1>(w, *run, sums);
    if (w.dim == 32) return add_ids<kSource, 2>(w, *run, sums);
    if (w.dim == 64) return add_ids<kSource, 4>(w, *run, sums);
  }
  add_ids<kSource, 0>(w, *run, sums);
}
void add_gradients(const Walk& w, const IdRun* run, RowSums* sums) {
  if (w.output_rows != nullptr) return add_all<Source::kOutputRows>(w, run, sums);
  add_all<Source::kFormula>(w, run, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();
#endif
