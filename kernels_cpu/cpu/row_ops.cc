// Compiled once per target by Highway's foreach_target: AVX-512, AVX2, and the baseline of the processor family.
#include "row_ops.h"

#include <cstring>

#include "cpu/targets.h"
#include "row_block.h"
#include "tessera/sdk/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_ops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/row_pool-inl.h"
#include "cpu/row_sums-inl.h"
#include "cpu/row_vectors-inl.h"
#include "cpu/row_walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera_cpu {
namespace HWY_NAMESPACE {

void widen(Storage from, const void* row, int64_t dim, float* out) {
  if (from == Storage::kFloat16) return widen_row<Half>(static_cast<const uint16_t*>(row), dim, out);
  widen_row<BFloat16>(static_cast<const uint16_t*>(row), dim, out);
}

void narrow(Storage to, const float* row, int64_t dim, void* out) { store_narrow(to, row, dim, out, 0); }

const RowOps& row_ops() {
  static constexpr RowOps kOps = {choose_pool, pool_max, walk, add_gradients, widen, narrow};
  return kOps;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera_cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera_cpu {

bool prefetch_to_l2() {
#if defined(__x86_64__)
  return !__builtin_cpu_is("amd");
#else
  return true;
#endif
}

const RowOps& best_row_ops() {
  const auto runs = [](int64_t target) { return (hwy::SupportedTargets() & target) != 0; };
  const sdk::IsaVariant variants[] = {
#if HWY_TARGETS & HWY_AVX3
    {"avx512", runs(HWY_AVX3), &N_AVX3::row_ops()},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"avx2", runs(HWY_AVX2), &N_AVX2::row_ops()},
#endif
    {"portable", runs(HWY_STATIC_TARGET), &HWY_NAMESPACE::row_ops()},
  };
  return *static_cast<const RowOps*>(sdk::choose_isa(variants).table);
}

}  // namespace tessera_cpu
#endif
