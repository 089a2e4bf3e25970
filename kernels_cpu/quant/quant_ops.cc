// Compiled once per target by Highway's foreach_target: AVX-512, AVX2, and the baseline of the processor family.
#include "quant_ops.h"

#include <cstring>

#include "cpu/targets.h"
#include "tessera/sdk/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/quant_ops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/row_vectors-inl.h"
#include "quant/quant_pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

const QuantOps& quant_ops() {
  static constexpr QuantOps kOps = {choose_quant_pool};
  return kOps;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera_cpu {

const QuantOps& best_quant_ops() {
  const auto runs = [](int64_t target) { return (hwy::SupportedTargets() & target) != 0; };
  const sdk::IsaVariant variants[] = {
#if HWY_TARGETS & HWY_AVX3
    {"avx512", runs(HWY_AVX3), &N_AVX3::quant_ops()},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"avx2", runs(HWY_AVX2), &N_AVX2::quant_ops()},
#endif
    {"portable", runs(HWY_STATIC_TARGET), &HWY_NAMESPACE::quant_ops()},
  };
  return *static_cast<const QuantOps*>(sdk::choose_isa(variants).table);
}

}  // namespace tessera_cpu
#endif
