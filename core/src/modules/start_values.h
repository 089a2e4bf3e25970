// Computes start values of rows by tsr_start_formula (abi/kernel.h).
#pragma once

#include <cstdint>

#include "tessera/abi/kernel.h"

namespace tessera {

// Writes columns [formula.first_col, formula.first_col + cols) of row `table_row` to `out`.
void start_row(const tsr_start_formula& formula, int64_t table_row, int64_t cols, float* out);

}  // namespace tessera
