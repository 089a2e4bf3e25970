#include <cstdint>

namespace tessera_dense::portable {
namespace {

// sums [rows, 16 * vectors] = x [rows, 4 * groups] times the transpose of a panel w.
void tile(int64_t rows, int64_t vectors, const uint8_t* x, int64_t groups, const int8_t* w, int32_t* sums) {
  const int64_t columns = 16 * vectors;
  // The weights of a group, widened once for all rows: of_group[k] has input k's weight for each output.
  int16_t of_group[4][64];
  for (int64_t i = 0; i < rows * columns; ++i) sums[i] = 0;
  for (int64_t g = 0; g < groups; ++g, w += columns * 4) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t k = 0; k < 4; ++k) of_group[k][c] = w[4 * c + k];
    }
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* const in = x + (r * groups + g) * 4;
      const int16_t a = in[0], b = in[1], c = in[2], d = in[3];
      int32_t* const to = sums + r * columns;
      for (int64_t i = 0; i < columns; ++i)
        to[i] += a * of_group[0][i] + b * of_group[1][i] + c * of_group[2][i] + d * of_group[3][i];
    }
  }
}

}  // namespace
}  // namespace tessera_dense::portable

#define INT8_ISA portable
#include "int8_kernels.inc"
