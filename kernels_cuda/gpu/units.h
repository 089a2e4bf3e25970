// gpu/units.h - device code: a group of lanes sums the gradients of one unit (gpu/gradient.h).
#pragma once

#include "gpu/columns.h"
#include "gpu/gradient.h"
#include "gpu/update.h"

namespace tessera::gpu {

constexpr int32_t kAhead = 4;  // entries, or chunks of rows, that a lane loads at the same time

GPU_DEVICE int64_t key_at(const GradientWork& work, int64_t i) {
  const void* keys = work.keys[work.sorted];
  return work.wide_keys ? static_cast<const int64_t*>(keys)[i]
                        : static_cast<int64_t>(static_cast<const uint32_t*>(keys)[i]);
}
GPU_DEVICE int32_t table_of(const TableView* tables, int32_t num_tables, int64_t key) {
  return last_at_or_below(num_tables, key, [&](int32_t t) { return tables[t].first_key; });
}
// The address for the sum of the unit that begins at entry `start`, used if its run has several units.
GPU_DEVICE float* partial_of(const GradientWork& work, int64_t start) {
  const int64_t block = start >> work.unit_shift;
  const int64_t slot = 2 * block + (start == block << work.unit_shift ? 0 : 1);
  return work.partials + slot * work.partial_stride;
}

// Clamps to [-maximum, maximum]. NaN stays NaN.
GPU_DEVICE float clamped(float value, float maximum) {
  return value < -maximum ? -maximum : value > maximum ? maximum : value;
}

// A unit for a group of lanes. One lane finds it and passes it through shared memory.
struct alignas(16) Unit {
  int64_t output;  // index where the gradient of its first entry begins
  void* weights;   // address of the row
  int32_t chunks;  // 0 if there is no such unit
  int32_t dim;
  int32_t whole;   // true if the unit is a whole run
  int32_t count;   // number of entries
  float scale;     // factor of the first entry
  uint32_t start;  // position of the first entry in sorted order
  uint32_t run;
  int32_t table;
  int64_t row;
  float state;  // the row's state, if the unit is a whole run
};

// Sums a unit's entries, in order.
template <class Grad>
struct UnitSum {
  const GradientWork& work;
  const OutputGradient& gradient;
  const Unit& unit;

  GPU_DEVICE const Grad* at(int64_t output) const { return static_cast<const Grad*>(gradient.data) + output; }
  GPU_DEVICE Entry entry(int32_t i) const { return work.entries[work.indices[work.sorted][unit.start + i]]; }
  GPU_DEVICE void add(const float (&g)[kLaneColumns], float scale, float (&sum)[kLaneColumns]) const {
    float x[kLaneColumns];
    GPU_UNROLL
    for (int32_t c = 0; c < kLaneColumns; ++c) x[c] = g[c] * gradient.scale;
    if (gradient.maximum > 0) {
      GPU_UNROLL
      for (int32_t c = 0; c < kLaneColumns; ++c) x[c] = clamped(x[c], gradient.maximum);
    }
    GPU_UNROLL
    for (int32_t c = 0; c < kLaneColumns; ++c) sum[c] += x[c] * scale;
  }

  template <class Columns>
  GPU_DEVICE void sum(const Columns& columns, float (&sum)[kLaneColumns]) const {
    float g[kLaneColumns];
    GPU_UNROLL
    for (int32_t c = 0; c < kLaneColumns; ++c) sum[c] = 0;
    for (int32_t i = 0; i < unit.count; ++i) {
      const Entry e = entry(i);
      columns.load(at(e.output), g);
      add(g, e.scale, sum);
    }
  }
  // Adds the first entry, which has been copied to copied[chunk * kBlockThreads].
  template <class Row>
  GPU_DEVICE void begin(Row& row, const Pack<Grad, kLaneColumns>* copied) const {
    row.each_held([&](int32_t c, const auto&) {
      float g[kLaneColumns];
      to_floats(copied[c * kBlockThreads], g);
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) row.held[c][i] = 0;
      add(g, unit.scale, row.held[c]);
    });
  }
  // Adds the other entries. The group's lanes look them up, one entry per lane at a time.
  template <class Row>
  GPU_DEVICE void finish(Row& row) const {
    for (int32_t first = 1; first < unit.count; first += row.lanes) {
      const int32_t count = unit.count - first < row.lanes ? unit.count - first : row.lanes;
      Entry mine{};
      if (row.lane < count) mine = entry(first + row.lane);
      for (int32_t i = 0; i < count; i += kAhead / Row::kChunks) add_entries(mine, i, count, row);
    }
  }
  // Adds the entries that lanes `from`, from + 1, ... have looked up, kAhead chunks of them, but at most `count`
  // entries.
  template <class Row>
  GPU_DEVICE void add_entries(const Entry& mine, int32_t from, int32_t count, Row& row) const {
    constexpr int32_t kEntries = kAhead / Row::kChunks;
    float ahead[kEntries][Row::kChunks][kLaneColumns];
    float scale[kEntries];
    GPU_UNROLL
    for (int32_t k = 0; k < kEntries; ++k) {
      const int64_t output = shfl(mine.output, from + k, row.lanes);
      scale[k] = shfl(mine.scale, from + k, row.lanes);
      if (from + k >= count) continue;
      row.each_held([&](int32_t c, const auto& columns) { columns.load(at(output), ahead[k][c]); });
    }
    GPU_UNROLL
    for (int32_t k = 0; k < kEntries; ++k) {
      if (from + k >= count) continue;
      row.each_held([&](int32_t c, const auto&) { add(ahead[k][c], scale[k], row.held[c]); });
    }
  }
};

}  // namespace tessera::gpu
