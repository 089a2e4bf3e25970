// The inner loops of the quant kernel, compiled for several instruction sets (quant_ops.cc).
#pragma once

#include "cpu/row_ops.h"
#include "tessera/sdk/row_format.h"

namespace tessera_cpu {

// A Pool of stored rows. Pool::row_bytes is the distance from row to row; a row itself has data_bytes, which may be
// fewer.
struct StoredPool : Pool {
  int64_t data_bytes;
};
using StoredPoolFunction = void (*)(const StoredPool& pool);

struct QuantOps {
  // The function for SUM, MEAN and sequences of rows of `dim` columns. It reads no byte beyond a row.
  StoredPoolFunction (*pool)(sdk::RowFormat format, bool wide_ids, int64_t dim);
};

// The best loops for this processor, or those that TESSERA_ISA names (sdk/isa.h).
const QuantOps& best_quant_ops();

}  // namespace tessera_cpu
