#include "gpu/update.h"

#include <algorithm>
#include <type_traits>

#include "gpu/formulas.h"
#include "gpu/units.h"
#include "tessera/abi/sharder.h"

namespace tessera::gpu {
namespace {

constexpr int64_t kMostBlocks = 1 << 16;  // the most blocks of a launch; they loop over more units
constexpr int64_t kFew = 1 << 17;         // up to this many entries, warps get fewer units, so that more warps work

// A row of floats.
struct FloatRow {
  const float* row;
  template <class Columns>
  GPU_DEVICE void sum(const Columns& columns, float (&out)[kLaneColumns]) const {
    columns.load(row, out);
  }
};

// A sink for the gradients of whole runs, which updates rows. All lanes of the warp call take(); groups without a run
// have 0 chunks. take() gets the row's state() and weights. If the sink has kReads, the weights are copied first.
template <class RowType>
struct Update {
  static constexpr bool kReads = true;
  using Row = RowType;
  UpdateStep step;
  GPU_DEVICE float state(const TableView& table, int64_t row) const { return row_state(step, table, row); }
  template <class Gradient, class Weights>
  GPU_DEVICE void take(const TableView& table, const Unit& unit, const Gradient& gradient,
                       const Weights& weights) const {
    update_row(step, table, unit.row, unit.state, gradient, weights);
  }
};
struct HandOut {
  static constexpr bool kReads = false;
  using Row = float;
  const RunTarget* targets;
  GPU_DEVICE float state(const TableView&, int64_t) const { return 0; }
  template <class Gradient, class Weights>
  GPU_DEVICE void take(const TableView& table, const Unit& unit, const Gradient& gradient, const Weights&) const {
    if (gradient.chunks == 0) return;
    const RunTarget& target = targets[unit.table];
    const int64_t at = unit.run - target.first_run;
    if (gradient.lane == 0) target.rows[at] = unit.row;
    float* values = target.values + at * table.dim;
    gradient.each([&](int32_t, const auto& columns, const float(&g)[kLaneColumns]) { columns.store(values, true, g); });
  }
};

template <class Sink>
struct ReduceArgs {
  const TableView* tables;
  int32_t num_tables;
  int32_t lanes;
  int32_t warp_units;  // units that a warp takes at a time
  GradientWork work;
  OutputGradient gradient;
  Sink sink;
};

// Reads unit u of `units` units. If a run of several units begins there, adds it to the list of long runs.
template <class Sink>
GPU_DEVICE Unit unit_at(const ReduceArgs<Sink>& a, int64_t u, int64_t units) {
  Unit unit{};
  if (u >= units) return unit;
  const GradientWork& work = a.work;
  unit.start = work.unit_start[u];
  const uint32_t end = work.unit_start[u + 1];
  unit.count = static_cast<int32_t>(end - unit.start);
  unit.run = work.unit_run[u];
  const int64_t key = key_at(work, unit.start);
  const Entry first = work.entries[work.indices[work.sorted][unit.start]];
  unit.output = first.output;
  unit.scale = first.scale;
  unit.table = table_of(a.tables, a.num_tables, key);
  const TableView& table = a.tables[unit.table];
  unit.dim = table.dim;
  unit.chunks = chunks_of(table.dim, a.lanes);
  unit.row = key - table.first_key;
  unit.weights = weights_of<typename Sink::Row>(table, unit.row);
  const bool head = unit.start == 0 || key_at(work, unit.start - 1) != key;
  unit.whole = head && (end == *work.entries_count || key_at(work, end) != key);
  if (head && unit.whole == 0) work.long_starts[atomic_add(work.long_count, 1u)] = static_cast<uint32_t>(u);
  if (unit.whole != 0) unit.state = a.sink.state(table, unit.row);
  return unit;
}

// A warp looks up many units, one per lane. Then its groups sum them one after the other, while the rows and first
// gradients of the next units are being loaded. On an H200, with one chunk, three concurrent blocks were faster than
// two or four; with more chunks, three spill registers.
template <class Grad, class Sink, bool kVectors, int32_t kHeld>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS_OF(kBlockThreads, (kVectors && kHeld == 1 ? 3 : 2))
    reduce_kernel(ReduceArgs<Sink> a) {
  using Row = typename Sink::Row;
  using Sum = UnitSum<Grad>;
  using Gradients = Pack<Grad, kLaneColumns>;
  using Weights = Pack<Row, kLaneColumns>;
  constexpr int32_t kUnits = kAhead / kHeld;  // units that a group loads ahead, in a ring
  GPU_SHARED(Unit, shared_units, kBlockThreads);
  GPU_SHARED(Gradients, shared_gradients, kAhead * kBlockThreads);
  GPU_SHARED(Weights, shared_weights, kAhead * kBlockThreads);
  const GradientWork& work = a.work;
  const int32_t groups = warp_size() / a.lanes;
  const int32_t group = lane() / a.lanes;
  const int32_t lane_in_group = lane() - group * a.lanes;
  const int32_t rounds = (a.warp_units + groups - 1) / groups;
  const int64_t all = *work.units_count;
  const int64_t warps = kBlockThreads / warp_size();
  Unit* const units = shared_units + warp() * warp_size();
  const Unit* const of_group = units + group;  // the group's unit i is at i * groups
  Gradients* const gradients = shared_gradients + threadIdx.x;
  Weights* const rows = shared_weights + threadIdx.x;

  const auto begin = [&](int32_t i) {
    if (i < rounds) {
      const Unit& unit = of_group[i * groups];
      const Sum sum{work, a.gradient, unit};
      const RowGradient<kVectors, Sum, kHeld> gradient(sum, lane_in_group, a.lanes, unit.dim, unit.chunks);
      gradient.each_held([&](int32_t c, const auto& columns) {
        const int32_t place = (i % kUnits * kHeld + c) * kBlockThreads;
        columns.copy(sum.at(unit.output), gradients[place]);
        if (Sink::kReads && unit.whole != 0) columns.copy(static_cast<const Row*>(unit.weights), rows[place]);
      });
    }
    copies_end();
  };
  for (int64_t first = (blockIdx.x * warps + warp()) * a.warp_units; first < all;
       first += gridDim.x * warps * a.warp_units) {
    units[lane()] = lane() < a.warp_units ? unit_at(a, first + lane(), all) : Unit{};
    sync_warp();
    for (int32_t i = 0; i < kUnits; ++i) begin(i);
    for (int32_t i = 0; i < rounds; ++i) {
      copies_wait<kUnits - 1>();
      const Unit& unit = of_group[i * groups];
      const int32_t place = i % kUnits * kHeld * kBlockThreads;
      const Sum sum{work, a.gradient, unit};
      RowGradient<kVectors, Sum, kHeld> gradient(sum, lane_in_group, a.lanes, unit.dim, unit.chunks);
      sum.begin(gradient, gradients + place);
      sum.finish(gradient);
      if (unit.whole == 0) {
        float* partial = partial_of(work, unit.start);
        gradient.each(
            [&](int32_t, const auto& columns, const float(&g)[kLaneColumns]) { columns.store(partial, true, g); });
        gradient.chunks = 0;  // another launch finishes its run
      }
      const RowWeights<Row, Sink::kReads ? kHeld : 0> weights{static_cast<Row*>(unit.weights), rows + place};
      a.sink.take(a.tables[unit.table], unit, gradient, weights);
      begin(i + kUnits);
    }
    sync_warp();
  }
}

// Returns the end of the run that begins at entry `start`.
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

// Adds the partials of the run of entries [start, end) into the first of them. All threads of the block call it.
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

// A run of several units, as one unit of all its entries up to `end`.
struct LongRun {
  Unit unit;
  int64_t end;
};

template <class Sink>
GPU_DEVICE LongRun find_long_run(const ReduceArgs<Sink>& a, int64_t i) {
  const GradientWork& work = a.work;
  const int64_t u = work.long_starts[i];
  LongRun found{};
  found.unit.start = work.unit_start[u];
  found.unit.run = work.unit_run[u];
  const int64_t key = key_at(work, found.unit.start);
  found.unit.table = table_of(a.tables, a.num_tables, key);
  const TableView& table = a.tables[found.unit.table];
  found.unit.row = key - table.first_key;
  found.unit.state = a.sink.state(table, found.unit.row);
  found.end = run_end(work, found.unit.start, key);
  return found;
}

// One block per run of several units.
template <class Sink, bool kVectors>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) finish_kernel(ReduceArgs<Sink> a) {
  using Sum = Pack<float, kLaneColumns>;
  GPU_SHARED(Sum, sums, kBlockThreads);
  GPU_SHARED(LongRun, found, 1);
  const GradientWork& work = a.work;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int64_t runs = *work.long_count;
  for (int64_t r = blockIdx.x; r < runs; r += gridDim.x) {
    if (thread == 0) found[0] = find_long_run(a, r);
    sync_block();
    const LongRun run = found[0];
    const TableView& table = a.tables[run.unit.table];
    sum_partials<kVectors>(work, run.unit.start, run.end, table.dim, a.lanes, sums);
    if (warp() != 0) continue;
    const FloatRow sum{partial_of(work, run.unit.start)};
    const RowGradient<kVectors, FloatRow, 0> gradient(sum, thread % a.lanes, a.lanes, table.dim,
                                                      thread < a.lanes ? chunks_of(table.dim, a.lanes) : 0);
    const RowWeights<typename Sink::Row, 0> weights{weights_of<typename Sink::Row>(table, run.unit.row), nullptr};
    a.sink.take(table, run.unit, gradient, weights);
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
    const int64_t row = has ? a.rows[i] : 0;
    const FloatRow values{a.values + (has ? i : 0) * table.dim};
    const RowGradient<kVectors, FloatRow, 0> gradient(values, thread % a.lanes, a.lanes, table.dim,
                                                      has ? chunks_of(table.dim, a.lanes) : 0);
    const RowWeights<Row, 0> weights{weights_of<Row>(table, row), nullptr};
    update_row(a.step, table, row, has ? row_state(a.step, table, row) : 0, gradient, weights);
  }
}

struct WeightArgs {
  BatchView batch;
  OutputGradient gradient;
  float* grad_weights;
  int32_t lanes;
};

// Each group of lanes computes a bag. All groups of a warp loop as long as the warp's longest bag needs.
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
        for (int32_t k = 0; k < kLaneColumns; ++k) {
          const float scaled = g[k] * a.gradient.scale;
          dot += (a.gradient.maximum > 0 ? clamped(scaled, a.gradient.maximum) : scaled) * row[k];
        }
      }
      dot = divide(group_sum(dot, a.lanes), divisor);
      if (i < length && lane == 0) a.grad_weights[begin + i] = dot;
    }
  }
}

// Calls body with std::true_type or std::false_type.
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

template <class Sink, bool kVectors, int32_t kHeld>
void launch_units(const ReduceArgs<Sink>& args, uint32_t blocks, Stream stream) {
  with_storage(args.gradient.storage, [&](auto grad) {
    GPU_LAUNCH((reduce_kernel<decltype(grad), Sink, kVectors, kHeld>), blocks, kBlockThreads, 0, stream, args);
  });
}

template <class Sink>
void launch_reduce(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                   const OutputGradient& gradient, const Sink& sink, Stream stream) {
  if (sizes.entries == 0) return;
  const int32_t lanes = group_lanes(what.max_dim);
  const int32_t warp_units =
      std::min(warp_size(), sizes.entries <= kFew ? kAhead * (warp_size() / lanes) : warp_size());
  const ReduceArgs<Sink> args{what.tables, what.num_tables, lanes, warp_units, work, gradient, sink};
  const uint32_t blocks = grid_for((sizes.entries + sizes.blocks()) / warp_units + 1, warp_size());
  const uint32_t finish_blocks = static_cast<uint32_t>(std::min<int64_t>(sizes.blocks(), 2048));
  with_bool(what.vectors && gradient.vectors, [&](auto vectors) {
    constexpr bool kVectors = decltype(vectors)::value;
    if (chunks_of(what.max_dim, lanes) == 1) {
      launch_units<Sink, kVectors, 1>(args, blocks, stream);
    } else {
      launch_units<Sink, kVectors, 2>(args, blocks, stream);
    }
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
