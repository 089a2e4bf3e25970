#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace tessera_dense::avx2 {
namespace {

// Widens four bytes to 16-bit integers, and repeats them four times.
inline __m256i spread(const uint8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(four)));
}

// Loops over sums are unrolled, because compilers otherwise keep the array in memory.
// Computes sums for kRows rows and 16 outputs; consecutive groups of w are `step` bytes apart. Products of 16-bit
// integers are summed in 32 bits, because the instruction for 8-bit integers would saturate.
template <int kRows>
void sixteen(const uint8_t* x, int64_t groups, const int8_t* w, int64_t step, int32_t* sums, int64_t stride) {
  __m256i acc[kRows][4];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) acc[r][v] = _mm256_setzero_si256();
  }
  for (int64_t g = 0; g < groups; ++g, w += step) {
    __m256i in[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) in[r] = spread(x + r * 4 * groups + g * 4);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m256i weights = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 16 * v)));
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) acc[r][v] = _mm256_add_epi32(acc[r][v], _mm256_madd_epi16(in[r], weights));
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < 4; v += 2) {
      const __m256i pairs = _mm256_hadd_epi32(acc[r][v], acc[r][v + 1]);
      const __m256i sorted = _mm256_permute4x64_epi64(pairs, 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * stride + 4 * v), sorted);
    }
  }
}

void tile(int64_t rows, int64_t vectors, const uint8_t* x, int64_t groups, const int8_t* w, int32_t* sums) {
  const int64_t columns = 16 * vectors;
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t r = 0; r < rows; r += 2) {
      const uint8_t* const from = x + r * 4 * groups;
      int32_t* const to = sums + r * columns + 16 * v;
      if (r + 1 < rows)
        sixteen<2>(from, groups, w + 64 * v, 4 * columns, to, columns);
      else
        sixteen<1>(from, groups, w + 64 * v, 4 * columns, to, columns);
    }
  }
}

}  // namespace
}  // namespace tessera_dense::avx2

#define INT8_ISA avx2
#include "int8_kernels.inc"
