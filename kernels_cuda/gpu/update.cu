#include "gpu/update.h"

#include <algorithm>
#include <type_traits>

#include "gpu/formulas.h"
#include "tessera/abi/sharder.h"

namespace tessera::gpu {
namespace {

constexpr int64_t kMostBlocks = 1 << 16;  // a launch's; they walk over what is more
constexpr int32_t kAhead = 2;             // entries whose loads are under way at once in a lane

GPU_DEVICE int64_t key_at(const GradientWork& work, int64_t i) {
  const void* keys = work.keys[work.sorted];
  return work.wide_keys ? static_cast<const int64_t*>(keys)[i]
                        : static_cast<int64_t>(static_cast<const uint32_t*>(keys)[i]);
}
GPU_DEVICE int32_t table_of(const TableView* tables, int32_t num_tables, int64_t key) {
  return last_at_or_below(num_tables, key, [&](int32_t t) { return tables[t].first_key; });
}
// Where the sum of the unit that begins at entry `start` is kept if its run has others.
GPU_DEVICE float* partial_of(const GradientWork& work, int64_t start) {
  const int64_t block = start >> work.unit_shift;
  const int64_t slot = 2 * block + (start == block << work.unit_shift ? 0 : 1);
  return work.partials + slot * work.partial_stride;
}

GPU_DEVICE float incoming(const OutputGradient& gradient, float value) {
  const float g = value * gradient.scale;
  if (!(gradient.maximum > 0)) return g;
  return g < -gradient.maximum ? -gradient.maximum : g > gradient.maximum ? gradient.maximum : g;  // NaN stays
}

// The sum of a unit's entries, in order.
template <class Grad, int32_t kHeldChunks>
struct UnitSum {
  static constexpr int32_t kHeld = kHeldChunks;
  const GradientWork& work;
  const OutputGradient& gradient;
  int64_t begin;
  int64_t end;

  template <class Columns>
  GPU_DEVICE void operator()(const Columns& columns, float (&sum)[kLaneColumns]) const {
    const uint32_t* order = work.indices[work.sorted];
    const Grad* from = static_cast<const Grad*>(gradient.data);
    GPU_UNROLL
    for (int32_t c = 0; c < kLaneColumns; ++c) sum[c] = 0;
    for (int64_t i = begin; i < end; i += kAhead) {
      const int32_t count = end - i < kAhead ? static_cast<int32_t>(end - i) : kAhead;
      uint32_t index[kAhead];
      Entry entry[kAhead];
      float g[kAhead][kLaneColumns];
      GPU_UNROLL
      for (int32_t k = 0; k < kAhead; ++k) {
        if (k < count) index[k] = order[i + k];
      }
      GPU_UNROLL
      for (int32_t k = 0; k < kAhead; ++k) {
        if (k < count) entry[k] = work.entries[index[k]];
      }
      GPU_UNROLL
      for (int32_t k = 0; k < kAhead; ++k) {
        if (k < count) columns.load(from + entry[k].output, g[k]);
      }
      GPU_UNROLL
      for (int32_t k = 0; k < kAhead; ++k) {
        if (k >= count) continue;
        GPU_UNROLL
        for (int32_t c = 0; c < kLaneColumns; ++c) sum[c] += incoming(gradient, g[k][c]) * entry[k].scale;
      }
    }
  }
};

// A row of floats.
struct FloatRow {
  static constexpr int32_t kHeld = 0;
  const float* row;
  template <class Columns>
  GPU_DEVICE void operator()(const Columns& columns, float (&out)[kLaneColumns]) const {
    columns.load(row, out);
  }
};

// What is done with a whole run's gradient. All lanes of the warp call take(); groups without a run have 0 chunks.
template <class Row>
struct Update {
  [[maybe_unused]] static constexpr int32_t kBlocks = 2;
  static constexpr int32_t kHeld = 2;  // looked at twice: adding them up again would read the gradients again
  UpdateStep step;
  template <class Gradient>
  GPU_DEVICE void take(const TableView& table, int32_t, int64_t row, int64_t, const Gradient& gradient) const {
    update_row<Row>(step, table, row, gradient);
  }
};
struct HandOut {
  [[maybe_unused]] static constexpr int32_t kBlocks = 4;
  static constexpr int32_t kHeld = 0;
  const RunTarget* targets;
  template <class Gradient>
  GPU_DEVICE void take(const TableView& table, int32_t t, int64_t row, int64_t run, const Gradient& gradient) const {
    if (gradient.chunks == 0) return;
    const RunTarget& target = targets[t];
    const int64_t at = run - target.first_run;
    if (gradient.lane == 0) target.rows[at] = row;
    float* values = target.values + at * table.dim;
    gradient.each([&](const auto& columns, const float(&g)[kLaneColumns]) { columns.store(values, true, g); });
  }
};

template <class Sink>
struct ReduceArgs {
  const TableView* tables;
  int32_t num_tables;
  int32_t lanes;
  GradientWork work;
  OutputGradient gradient;
  Sink sink;
};

// One group of lanes for each unit.
template <class Grad, class Sink, bool kVectors>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS_OF(kBlockThreads, Sink::kBlocks) reduce_kernel(ReduceArgs<Sink> a) {
  const GradientWork& work = a.work;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % a.lanes;
  const int64_t groups = kBlockThreads / a.lanes;
  const int64_t units = *work.units_count;
  const int64_t entries = *work.entries_count;
  for (int64_t first = blockIdx.x * groups; first < units; first += gridDim.x * groups) {
    const int64_t u = first + thread / a.lanes;
    bool whole = false;  // the unit is a run of its own
    int64_t start = 0;
    int64_t end = 0;
    int64_t key = 0;
    int32_t t = 0;
    if (u < units) {
      start = work.unit_start[u];
      end = work.unit_start[u + 1];
      key = key_at(work, start);
      t = table_of(a.tables, a.num_tables, key);
      const bool head = start == 0 || key_at(work, start - 1) != key;
      whole = head && (end == entries || key_at(work, end) != key);
      if (head && !whole && lane == 0) work.long_starts[atomic_add(work.long_count, 1u)] = static_cast<uint32_t>(u);
    }
    const TableView& table = a.tables[t];
    using Sum = UnitSum<Grad, Sink::kHeld>;
    const Sum sum{work, a.gradient, start, end};
    RowGradient<kVectors, Sum> gradient(sum, lane, a.lanes, table.dim, u < units);
    if (u < units && !whole) {
      float* partial = partial_of(work, start);
      gradient.each([&](const auto& columns, const float(&g)[kLaneColumns]) { columns.store(partial, true, g); });
      gradient.chunks = 0;  // its run is finished by another launch
    }
    a.sink.take(table, t, key - table.first_key, u < units ? work.unit_run[u] : 0, gradient);
  }
}

// The end of the run that begins at entry `start`.
GPU_DEVICE int64_t run_end(const GradientWork& work, int64_t start, int64_t key) {
  int64_t low = start + 1;
  int64_t high = *work.entries_count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (key_at(work, middle) == key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Adds up the partials of the run of entries [start, end) into the first of them. All threads of the block call it.
template <bool kVectors>
GPU_DEVICE void sum_partials(const GradientWork& work, int64_t start, int64_t end, int32_t dim, int32_t lanes,
                             Pack<float, kLaneColumns>* sums) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % lanes;
  const int32_t group = thread / lanes;
  const int32_t groups = kBlockThreads / lanes;
  const int64_t last = (end - 1) >> work.unit_shift;
  for (int32_t c = 0; c < chunks_of(dim, lanes); ++c) {
    const LaneColumns<kVectors> columns(c, lane, lanes, dim);
    Pack<float, kLaneColumns> sum{};
    for (int64_t block = (start >> work.unit_shift) + group; columns.any() && block <= last; block += groups) {
      const int64_t begin = block << work.unit_shift;
      float part[kLaneColumns];
      columns.load(partial_of(work, begin < start ? start : begin), part);
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) sum.v[i] += part[i];
    }
    sums[thread] = sum;
    sync_block();
    if (group == 0 && columns.any()) {
      float all[kLaneColumns] = {};
      for (int32_t g = 0; g < groups; ++g) {
        GPU_UNROLL
        for (int32_t i = 0; i < kLaneColumns; ++i) all[i] += sums[g * lanes + lane].v[i];
      }
      columns.store(partial_of(work, start), true, all);
    }
    sync_block();
  }
}

// A run of several units.
struct LongRun {
  int64_t start;
  int64_t end;
  int64_t row;
  int64_t run;
  int32_t table;
};

GPU_DEVICE LongRun find_long_run(const GradientWork& work, const TableView* tables, int32_t num_tables, int64_t i) {
  const int64_t unit = work.long_starts[i];
  const int64_t start = work.unit_start[unit];
  const int64_t key = key_at(work, start);
  const int32_t t = table_of(tables, num_tables, key);
  return {start, run_end(work, start, key), key - tables[t].first_key, work.unit_run[unit], t};
}

// One block for each run of several units.
template <class Sink, bool kVectors>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) finish_kernel(ReduceArgs<Sink> a) {
  using Sum = Pack<float, kLaneColumns>;
  GPU_SHARED(Sum, sums, kBlockThreads);
  GPU_SHARED(LongRun, found, 1);
  const GradientWork& work = a.work;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int64_t runs = *work.long_count;
  for (int64_t r = blockIdx.x; r < runs; r += gridDim.x) {
    if (thread == 0) found[0] = find_long_run(work, a.tables, a.num_tables, r);
    sync_block();
    const LongRun run = found[0];
    const TableView& table = a.tables[run.table];
    sum_partials<kVectors>(work, run.start, run.end, table.dim, a.lanes, sums);
    if (warp() != 0) continue;
    const FloatRow sum{partial_of(work, run.start)};
    const RowGradient<kVectors, FloatRow> gradient(sum, thread % a.lanes, a.lanes, table.dim, thread < a.lanes);
    a.sink.take(table, run.table, run.row, run.run, gradient);
  }
}

struct ApplyArgs {
  const TableView* table;
  int32_t lanes;
  int64_t count;
  const int64_t* rows;
  const float* values;
  UpdateStep step;
};

template <class Row, bool kVectors>
GPU_GLOBAL void apply_kernel(ApplyArgs a) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int64_t groups = kBlockThreads / a.lanes;
  const TableView& table = *a.table;
  for (int64_t first = blockIdx.x * groups; first < a.count; first += gridDim.x * groups) {
    const int64_t i = first + thread / a.lanes;
    const bool has = i < a.count;
    const FloatRow values{a.values + (has ? i : 0) * table.dim};
    const RowGradient<kVectors, FloatRow> gradient(values, thread % a.lanes, a.lanes, table.dim, has);
    update_row<Row>(a.step, table, has ? a.rows[i] : 0, gradient);
  }
}

struct WeightArgs {
  BatchView batch;
  OutputGradient gradient;
  float* grad_weights;
  int32_t lanes;
};

// One group of lanes for each bag; all groups of a warp walk as far as its longest bag.
template <class Row, class Grad>
GPU_GLOBAL void weight_gradients_kernel(WeightArgs a) {
  const FeatureView* features = a.batch.features;
  const Indices& offsets = a.batch.offsets;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % a.lanes;
  const int64_t groups = kBlockThreads / a.lanes;
  for (int64_t first = blockIdx.x * groups; first < a.batch.bags; first += gridDim.x * groups) {
    const int64_t bag = first + thread / a.lanes;
    const int32_t f = last_at_or_below(a.batch.num_features, bag < a.batch.bags ? bag : 0,
                                       [&](int32_t i) { return features[i].first_bag; });
    const FeatureView& feature = features[f];
    const TableView& table = a.batch.tables[feature.table];
    int64_t begin = 0;
    int64_t length = 0;
    int64_t slot = bag - feature.first_bag;
    const bool none = feature.pooling == TSR_POOLING_NONE;
    if (bag < a.batch.bags) {
      begin = index_at(offsets, feature.first_offset + slot);
      length = index_at(offsets, feature.first_offset + slot + 1) - begin;
      if (none) slot = begin - index_at(offsets, feature.first_offset);
    }
    int64_t longest = length;
    for (int32_t d = warp_size() / 2; d > 0; d /= 2) {
      const int64_t other = shfl_xor(longest, d);
      longest = other > longest ? other : longest;
    }
    const float divisor = feature.pooling == TSR_POOLING_MEAN ? static_cast<float>(length) : 1.0f;
    for (int64_t i = 0; i < longest; ++i) {
      float dot = 0;
      for (int32_t c = 0; i < length && c < chunks_of(table.dim, a.lanes); ++c) {
        const LaneColumns<false> columns(c, lane, a.lanes, table.dim);
        if (!columns.any()) continue;
        float row[kLaneColumns];
        float g[kLaneColumns];
        columns.load(static_cast<const Row*>(table.weights) + index_at(a.batch.ids, begin + i) * table.row_stride, row);
        columns.load(static_cast<const Grad*>(a.gradient.data) + feature.output_offset +
                         (slot + (none ? i : 0)) * feature.output_stride,
                     g);
        GPU_UNROLL
        for (int32_t k = 0; k < kLaneColumns; ++k) dot += incoming(a.gradient, g[k]) * row[k];
      }
      dot = divide(group_sum(dot, a.lanes), divisor);
      if (i < length && lane == 0) a.grad_weights[begin + i] = dot;
    }
  }
}

// body(bool constant)
template <class Body>
void with_bool(bool value, Body body) {
  if (value) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

uint32_t grid_for(int64_t groups, int32_t lanes) {
  const int64_t in_block = kBlockThreads / lanes;
  return static_cast<uint32_t>(std::clamp<int64_t>((groups + in_block - 1) / in_block, 1, kMostBlocks));
}

template <class Sink>
void launch_reduce(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                   const OutputGradient& gradient, const Sink& sink, Stream stream) {
  if (sizes.entries == 0) return;
  const int32_t lanes = group_lanes(what.max_dim);
  const ReduceArgs<Sink> args{what.tables, what.num_tables, lanes, work, gradient, sink};
  const uint32_t blocks = grid_for(sizes.entries + sizes.blocks(), lanes);
  const uint32_t finish_blocks = static_cast<uint32_t>(std::min<int64_t>(sizes.blocks(), 2048));
  with_bool(what.vectors && gradient.vectors, [&](auto vectors) {
    constexpr bool kVectors = decltype(vectors)::value;
    with_storage(gradient.storage, [&](auto grad) {
      GPU_LAUNCH((reduce_kernel<decltype(grad), Sink, kVectors>), blocks, kBlockThreads, 0, stream, args);
    });
    GPU_LAUNCH((finish_kernel<Sink, kVectors>), finish_blocks, kBlockThreads, 0, stream, args);
  });
}

}  // namespace

void launch_update(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                   const OutputGradient& gradient, const UpdateStep& step, Stream stream) {
  with_storage(what.rows,
               [&](auto row) { launch_reduce(what, sizes, work, gradient, Update<decltype(row)>{step}, stream); });
}

void launch_hand_out(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                     const OutputGradient& gradient, const RunTarget* targets, Stream stream) {
  launch_reduce(what, sizes, work, gradient, HandOut{targets}, stream);
}

void launch_apply(const UpdateLaunch& what, int32_t table, int64_t count, const int64_t* rows, const float* values,
                  const UpdateStep& step, Stream stream) {
  if (count == 0) return;
  const int32_t lanes = group_lanes(what.max_dim);
  const ApplyArgs args{what.tables + table, lanes, count, rows, values, step};
  const bool aligned = reinterpret_cast<uintptr_t>(values) % (kLaneColumns * sizeof(float)) == 0;
  with_bool(what.vectors && aligned, [&](auto vectors) {
    with_storage(what.rows, [&](auto row) {
      GPU_LAUNCH((apply_kernel<decltype(row), decltype(vectors)::value>), grid_for(count, lanes), kBlockThreads, 0,
                 stream, args);
    });
  });
}

void launch_weight_gradients(const UpdateLaunch& what, const BatchView& batch, const OutputGradient& gradient,
                             float* grad_weights, Stream stream) {
  if (batch.bags == 0) return;
  const int32_t lanes = group_lanes(what.max_dim);
  const WeightArgs args{batch, gradient, grad_weights, lanes};
  with_storage(what.rows, [&](auto row) {
    with_storage(gradient.storage, [&](auto grad) {
      GPU_LAUNCH((weight_gradients_kernel<decltype(row), decltype(grad)>), grid_for(batch.bags, lanes), kBlockThreads,
                 0, stream, args);
    });
  });
}

}  // namespace tessera::gpu
