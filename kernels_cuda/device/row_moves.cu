#include "device/row_moves.h"

#include <algorithm>

namespace tessera::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 2048;  // the most blocks along x; they loop over more elements

struct Lists {
  const tsr_row_target* targets;
  const tsr_row_run* runs;
  const int32_t* index;
  const float* scales;
};

// Calls body(target, row, column) for every element of the block's targets.
template <class Body>
GPU_DEVICE void for_each_element(const Lists& lists, uint32_t num_targets, const Body& body) {
  for (uint32_t t = blockIdx.y; t < num_targets; t += gridDim.y) {
    const tsr_row_target& target = lists.targets[t];
    const int64_t elements = target.rows * target.cols;
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < elements; e += int64_t{gridDim.x} * kThreads)
      body(target, e / target.cols, e % target.cols);
  }
}

GPU_DEVICE float scale_of(const Lists& lists, const tsr_row_target& target, int64_t row) {
  return target.scale < 0 ? 1.0f : lists.scales[target.scale + row];
}

// The index of this element among the run's packed rows; -1 if there is none.
GPU_DEVICE int64_t packed_at(const Lists& lists, const tsr_row_run& run, int64_t row, int64_t column) {
  const int64_t c = column - run.col;
  if (c < 0 || c >= run.cols) return -1;
  const int64_t i = lists.index[run.index + row];
  return i < 0 ? -1 : run.begin + i * run.cols + c;
}

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kThreads)
    combine_kernel(Lists lists, uint32_t num_targets, const float* packed, float* spread) {
  for_each_element(lists, num_targets, [&](const tsr_row_target& target, int64_t row, int64_t column) {
    const float scale = scale_of(lists, target, row);
    float sum = 0;
    for (int32_t r = target.first_run; r < target.first_run + target.num_runs; ++r) {
      const int64_t at = packed_at(lists, lists.runs[r], row, column);
      if (at >= 0) sum += scale * packed[at];
    }
    spread[target.begin + row * target.stride + column] = sum;
  });
}

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kThreads)
    split_kernel(Lists lists, uint32_t num_targets, float* packed, const float* spread) {
  for_each_element(lists, num_targets, [&](const tsr_row_target& target, int64_t row, int64_t column) {
    const float value = scale_of(lists, target, row) * spread[target.begin + row * target.stride + column];
    for (int32_t r = target.first_run; r < target.first_run + target.num_runs; ++r) {
      const int64_t at = packed_at(lists, lists.runs[r], row, column);
      if (at >= 0) packed[at] = value;
    }
  });
}

dim3 grid_of(const tsr_row_moves& moves) {
  constexpr uint32_t kMostTargets = 65535;  // the most blocks of a grid along y
  const int64_t blocks = (moves.most_elements + kThreads - 1) / kThreads;
  return dim3(static_cast<unsigned>(std::min(blocks, kMostBlocks)), std::min(moves.num_targets, kMostTargets));
}

}  // namespace

void combine_rows(const tsr_row_moves& m, Stream stream) {
  if (m.num_targets == 0 || m.most_elements == 0) return;
  const Lists lists{m.targets, m.runs, m.index, m.scales};
  GPU_LAUNCH(combine_kernel, grid_of(m), dim3(kThreads), 0, stream, lists, m.num_targets, m.packed, m.spread);
}

void split_rows(const tsr_row_moves& m, Stream stream) {
  if (m.num_targets == 0 || m.most_elements == 0) return;
  const Lists lists{m.targets, m.runs, m.index, m.scales};
  GPU_LAUNCH(split_kernel, grid_of(m), dim3(kThreads), 0, stream, lists, m.num_targets, m.packed, m.spread);
}

}  // namespace tessera::gpu
