#include "modules/start_values.h"

#include <algorithm>
#include <vector>

#include "config/splitmix64.h"
#include "tessera/lookup.h"

namespace tessera {

void start_row(const tsr_start_formula& formula, int64_t table_row, int64_t cols, float* out) {
  const uint64_t row_key = mixed(formula.key + kGoldenStep * static_cast<uint64_t>(table_row + 1));
  // Two columns share a hash: the lower half is the even one's.
  const auto hash = [row_key](int64_t column) {
    return mixed(row_key + kGoldenStep * (static_cast<uint64_t>(column) / 2 + 1));
  };
  const auto value = [scale = formula.scale](uint64_t bits) {
    return (static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(bits)) >> 8) + 0.5f) * scale;
  };
  const int64_t col = formula.first_col;
  int64_t j = 0;
  if (cols > 0 && col % 2 == 1) out[j++] = value(hash(col) >> 32);
  for (; j + 1 < cols; j += 2) {
    const uint64_t bits = hash(col + j);
    out[j] = value(bits);
    out[j + 1] = value(bits >> 32);
  }
  if (j < cols) out[j] = value(hash(col + j));
}

void StartValues::fill(std::span<const int64_t> rows, int64_t dim, float* out) const {
  if (formula.scale == 0) {
    std::fill_n(out, static_cast<int64_t>(rows.size()) * dim, 0.0f);
    return;
  }
  std::vector<int64_t> table_rows(unroute ? rows.size() : 0);
  if (unroute) unroute(rows, table_rows.data());
  for (size_t i = 0; i < rows.size(); ++i)
    start_row(formula, unroute ? table_rows[i] : formula.first_row + rows[i], dim, out + static_cast<int64_t>(i) * dim);
}

}  // namespace tessera
