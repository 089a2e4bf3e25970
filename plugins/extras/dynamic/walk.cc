// The steps of a lookup (walk.inc), compiled for each instruction set.
#include "walk.h"

#include <tessera/sdk/isa.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace extras {
namespace {

#define WALK_AVX512 0
namespace walk_portable {
#include "walk.inc"
}
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace walk_avx2 {
#include "walk.inc"
}
#pragma GCC pop_options
#undef WALK_AVX512
#define WALK_AVX512 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
namespace walk_avx512 {
#include "walk.inc"
}
#pragma GCC pop_options
#endif
#undef WALK_AVX512

}  // namespace

const WalkTable& choose_walk() {
  using tessera::sdk::IsaVariant;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const IsaVariant variants[] = {{"avx512", avx512, &walk_avx512::kTable},
                                 {"avx2", avx2, &walk_avx2::kTable},
                                 {"portable", true, &walk_portable::kTable}};
#else
  const IsaVariant variants[] = {{"portable", true, &walk_portable::kTable}};
#endif
  return *static_cast<const WalkTable*>(tessera::sdk::choose_isa(variants).table);
}

}  // namespace extras
