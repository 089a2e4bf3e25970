// gpu/rows.h - moves rows with their states between a table and float arrays, on the device.
#pragma once

#include "gpu/gpu.h"
#include "gpu/views.h"

namespace tessera::gpu {

constexpr int32_t kMostStates = 8;

// Row i of the arrays is row ids[i] of the table, or first + i if ids is NULL. All is device memory.
struct RowArrays {
  const int64_t* ids;
  int64_t first;
  int64_t count;
  float* weights;  // [count, dim]
  int32_t num_states;
  int32_t per_row[kMostStates];  // true if state k has a value per row
  int32_t index[kMostStates];    // index of state k among those of its kind
  float* states[kMostStates];    // [count] or [count, dim]
};

void launch_read_rows(const TableView* table, Storage storage, const RowArrays& arrays, Stream stream);
void launch_write_rows(const TableView* table, Storage storage, const RowArrays& arrays, Stream stream);

}  // namespace tessera::gpu
