#include <immintrin.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tessera_dense::avx512 {
namespace {

// Loops over sums are unrolled, because compilers otherwise keep the array in memory.
template <int kRows, int kVectors>
void sums_of(const uint8_t* x, int64_t groups, const int8_t* w, int32_t* sums) {
  __m512i acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_si512();
  }
  for (int64_t g = 0; g < groups; ++g, w += 64 * kVectors) {
    __m512i weights[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) weights[v] = _mm512_loadu_si512(w + 64 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, x + r * 4 * groups + g * 4, sizeof(four));
      const __m512i in = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], in, weights[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_si512(sums + (r * kVectors + v) * 16, acc[r][v]);
  }
}

using Tile = void (*)(const uint8_t* x, int64_t groups, const int8_t* w, int32_t* sums);

template <size_t... kIndex>
constexpr std::array<Tile, sizeof...(kIndex)> tiles_of(std::index_sequence<kIndex...>) {
  return {&sums_of<static_cast<int>(kIndex / 4 + 1), static_cast<int>(kIndex % 4 + 1)>...};
}

void tile(int64_t rows, int64_t vectors, const uint8_t* x, int64_t groups, const int8_t* w, int32_t* sums) {
  static constexpr std::array<Tile, 24> kTiles = tiles_of(std::make_index_sequence<24>());
  kTiles[static_cast<size_t>((rows - 1) * 4 + vectors - 1)](x, groups, w, sums);
}

}  // namespace
}  // namespace tessera_dense::avx512

#define INT8_ISA avx512
#include "int8_kernels.inc"
