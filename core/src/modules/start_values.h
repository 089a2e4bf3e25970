// Start values as tsr_start_formula (abi/kernel.h) says them.
#pragma once

#include <cstdint>

#include "tessera/abi/kernel.h"

namespace tessera {

// Row `table_row` of the table: its columns from formula.first_col on into out[cols].
void start_row(const tsr_start_formula& formula, int64_t table_row, int64_t cols, float* out);

}  // namespace tessera
