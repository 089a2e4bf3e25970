#include "gpu/rows.h"

#include <algorithm>

#include "gpu/columns.h"

namespace tessera::gpu {
namespace {

struct RowsArgs {
  const TableView* table;
  RowArrays arrays;
};

// Calls body(stored value or state, value in the arrays) for every column of row i that belongs to this lane.
template <class Row, class Move, class MoveState>
GPU_DEVICE void each_value(const RowsArgs& a, int64_t i, Move move, MoveState move_state) {
  const TableView& table = *a.table;
  const int64_t row = a.arrays.ids == nullptr ? a.arrays.first + i : a.arrays.ids[i];
  if (row < 0 || row >= table.rows) return;
  Row* weights = static_cast<Row*>(table.weights) + row * table.row_stride;
  for (int32_t c = lane(); c < table.dim; c += warp_size()) move(weights[c], a.arrays.weights[i * table.dim + c]);
  for (int32_t k = 0; k < a.arrays.num_states; ++k) {
    if (a.arrays.per_row[k] != 0) {
      if (lane() == 0) move_state(table.per_row[row * table.row_states + a.arrays.index[k]], a.arrays.states[k][i]);
      continue;
    }
    float* state = table.elements + row * table.element_stride + a.arrays.index[k] * table.dim;
    for (int32_t c = lane(); c < table.dim; c += warp_size()) {
      move_state(state[c], a.arrays.states[k][i * table.dim + c]);
    }
  }
}

// Each warp moves a row.
template <class Row, bool kWrite>
GPU_GLOBAL void rows_kernel(RowsArgs a) {
  const int64_t warps = kBlockThreads / warp_size();
  for (int64_t i = blockIdx.x * warps + warp(); i < a.arrays.count; i += gridDim.x * warps) {
    if constexpr (kWrite) {
      each_value<Row>(
          a, i, [](Row& stored, float& value) { stored = from_float<Row>(value); },
          [](float& stored, float& value) { stored = value; });
    } else {
      each_value<Row>(
          a, i, [](Row& stored, float& value) { value = to_float(stored); },
          [](float& stored, float& value) { value = stored; });
    }
  }
}

template <bool kWrite>
void launch(const TableView* table, Storage storage, const RowArrays& arrays, Stream stream) {
  if (arrays.count == 0) return;
  const int64_t warps = kBlockThreads / warp_size();
  const int64_t blocks = std::min<int64_t>((arrays.count + warps - 1) / warps, 4096);
  with_storage(storage, [&](auto row) {
    GPU_LAUNCH((rows_kernel<decltype(row), kWrite>), static_cast<uint32_t>(blocks), kBlockThreads, 0, stream,
               RowsArgs{table, arrays});
  });
}

}  // namespace

void launch_read_rows(const TableView* table, Storage storage, const RowArrays& arrays, Stream stream) {
  launch<false>(table, storage, arrays, stream);
}
void launch_write_rows(const TableView* table, Storage storage, const RowArrays& arrays, Stream stream) {
  launch<true>(table, storage, arrays, stream);
}

}  // namespace tessera::gpu
