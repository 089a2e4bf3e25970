// Backward: computes an entry's gradient, for every kind of source and factor. Compiled per target.
#if defined(TESSERA_ROW_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ROW_GRADIENTS_INL_H_
#undef TESSERA_ROW_GRADIENTS_INL_H_
#else
#define TESSERA_ROW_GRADIENTS_INL_H_
#endif

#include "cpu/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

enum class Source {
  kFormula,     // PlainEntry, output rows in one run, scale 1
  kOutputRows,  // PlainEntry, output rows with a scale of their own
  kFull,        // FullEntry
};

// G is the type of gradients.
template <class G, Source kSource>
class Gradients {
 protected:
  using Entry = std::conditional_t<kSource == Source::kFull, FullEntry, PlainEntry>;

  explicit HWY_INLINE Gradients(const Walk& walk)
      : walk_(walk),
        output_rows_(walk.output_rows),
        gradient_(walk.gradient),
        output_row_bytes_(walk.output_row_bytes),
        plain_factor_(walk.max_gradient == 0 ? walk.grad_scale : 1) {}

  HWY_INLINE const char* address(const Entry& e) const {
    if constexpr (kSource == Source::kFormula)
      return gradient_ + static_cast<int64_t>(e.output_row) * output_row_bytes_;
    return output_rows_[e.output_row].gradient;
  }
  // The factor of an entry's gradient, without its own weight.
  HWY_INLINE float scale(const Entry& e) const {
    if constexpr (kSource == Source::kFormula) return 1;
    return output_rows_[e.output_row].scale;
  }

  // Applies grad_scale and the clamp to a vector of an entry's gradient, but not the entry's scale and weight. NaN
  // stays NaN.
  HWY_INLINE FloatVector clamped(FloatVector g) const {
    const FloatTag d;
    if (HWY_LIKELY(walk_.max_gradient == 0)) return g;  // factor() includes grad_scale
    g = hn::Mul(g, hn::Set(d, walk_.grad_scale));
    const FloatVector bounded = hn::Clamp(g, hn::Set(d, -walk_.max_gradient), hn::Set(d, walk_.max_gradient));
    return hn::IfThenElse(hn::IsNaN(g), g, bounded);
  }
  // The factor that goes with clamped().
  HWY_INLINE float factor(const Entry& e) const { return scale(e) * plain_factor_; }

  const Walk& walk_;
  // Copies of the walk's members, so that the compiler keeps them in registers across writes to memory.
  const OutputRow* const output_rows_;

 private:
  const char* const gradient_;
  const int64_t output_row_bytes_;
  const float plain_factor_;  // multiplies scale()
};

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();
#endif
