#include "bench/lookup_gather.h"

namespace tessera::cli {
namespace {

#define GATHER_ISA portable
#define GATHER_BYTES 16
#define GATHER_TARGET
#include "bench/lookup_gather.inc"
#undef GATHER_ISA
#undef GATHER_BYTES
#undef GATHER_TARGET

#if defined(__x86_64__)
#define GATHER_ISA avx2
#define GATHER_BYTES 32
#define GATHER_TARGET __attribute__((target("avx2")))
#include "bench/lookup_gather.inc"
#undef GATHER_ISA
#undef GATHER_BYTES
#undef GATHER_TARGET

#define GATHER_ISA avx512
#define GATHER_BYTES 64
#define GATHER_TARGET __attribute__((target("avx512f")))
#include "bench/lookup_gather.inc"
#undef GATHER_ISA
#undef GATHER_BYTES
#undef GATHER_TARGET
#endif

}  // namespace

std::vector<GatherWay> gather_ways(int64_t dim) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512::ways(dim);
  if (__builtin_cpu_supports("avx2")) return avx2::ways(dim);
#endif
  return portable::ways(dim);
}

}  // namespace tessera::cli
