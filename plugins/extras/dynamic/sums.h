// Weighted sums of scattered vectors, compiled for several instruction sets.
#pragma once

#include <tessera/sdk/isa.h>

#include <cstdint>

namespace extras {

// out[0, dim) = the sum of scales[i] * rows[i][0, dim). If scales is NULL, all are 1.
using SumRows = void(const float* const* rows, const float* scales, int64_t count, int64_t dim, float* out);

namespace sums {

typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;

template <int kVectors>
[[gnu::always_inline]] inline void block(const float* const* rows, const float* scales, int64_t count, int64_t column,
                                         float* out) {
  Vector sum[kVectors] = {};  // stays in registers, because the loops over it are unrolled
  for (int64_t i = 0; i < count; ++i) {
    const Vector* row = reinterpret_cast<const Vector*>(rows[i] + column);  // auto would lose the alignment
    const float scale = scales == nullptr ? 1 : scales[i];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[v] += scale * row[v];
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) reinterpret_cast<Vector*>(out + column)[v] = sum[v];
}

[[gnu::always_inline]] inline void all(const float* const* rows, const float* scales, int64_t count, int64_t dim,
                                       float* out) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= dim; column += 4 * kLanes) block<4>(rows, scales, count, column, out);
  for (; column + kLanes <= dim; column += kLanes) block<1>(rows, scales, count, column, out);
  for (; column < dim; ++column) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += (scales == nullptr ? 1 : scales[i]) * rows[i][column];
    out[column] = sum;
  }
}

inline void portable(const float* const* rows, const float* scales, int64_t count, int64_t dim, float* out) {
  all(rows, scales, count, dim, out);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] inline void avx2(const float* const* rows, const float* scales, int64_t count, int64_t dim,
                                             float* out) {
  all(rows, scales, count, dim, out);
}
[[gnu::target("avx512f,fma")]] inline void avx512(const float* const* rows, const float* scales, int64_t count,
                                                  int64_t dim, float* out) {
  all(rows, scales, count, dim, out);
}
#endif

}  // namespace sums

inline SumRows* choose_sums() {
  using tessera::sdk::IsaVariant;
  static constexpr struct { SumRows* sum; } kPortable{&sums::portable};
#if defined(__x86_64__)
  static constexpr decltype(kPortable) kAvx2{&sums::avx2}, kAvx512{&sums::avx512};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f");
  const IsaVariant variants[] = {{"avx512", avx512, &kAvx512}, {"avx2", avx2, &kAvx2}, {"portable", true, &kPortable}};
#else
  const IsaVariant variants[] = {{"portable", true, &kPortable}};
#endif
  return static_cast<decltype(&kPortable)>(tessera::sdk::choose_isa(variants).table)->sum;
}

}  // namespace extras
