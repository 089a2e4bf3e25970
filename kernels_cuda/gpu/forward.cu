// Table-batched lookup: one launch for all features.
#include "gpu/forward.h"

#include "gpu/columns.h"
#include "tessera/abi/sharder.h"

namespace tessera::gpu {
namespace {

constexpr int32_t kAhead = 4;  // rows that a lane loads at the same time

struct ForwardArgs {
  BatchView batch;
  void* output;
  uint64_t* lookups;
};

// A group's share of one bag.
template <class Row, bool kVectors>
struct Bag {
  const Row* rows;
  int64_t row_stride;
  Indices ids;
  const float* weights;
  int64_t begin;
  int64_t end;
  LaneColumns<kVectors> columns;

  // Calls body(position, row) for each id of the bag in order. The loads of kAhead rows are started together.
  template <class Body>
  GPU_DEVICE void visit(Body body) const {
    for (int64_t p = begin; p < end; p += kAhead) {
      const int32_t count = end - p < kAhead ? static_cast<int32_t>(end - p) : kAhead;
      int64_t id[kAhead];
      load_indices(ids, p, count, id);
      float row[kAhead][kLaneColumns];
      GPU_UNROLL
      for (int32_t i = 0; i < kAhead; ++i) {
        if (i < count) columns.load(rows + id[i] * row_stride, row[i]);
      }
      GPU_UNROLL
      for (int32_t i = 0; i < kAhead; ++i) {
        if (i >= count) continue;
        const float weight = weights == nullptr ? 1.0f : weights[p + i];
        GPU_UNROLL
        for (int32_t c = 0; c < kLaneColumns; ++c) row[i][c] *= weight;
        body(p + i, row[i]);
      }
    }
  }
};

template <class Row, class Out, bool kVectors>
GPU_DEVICE void look_up(const ForwardArgs& a, const FeatureView& feature, int64_t item, int32_t lane, int32_t lanes,
                        int32_t chunks) {
  const TableView& table = a.batch.tables[feature.table];
  const int64_t b = chunks == 1 ? item : static_cast<uint32_t>(item) / static_cast<uint32_t>(chunks);
  const Indices& offsets = a.batch.offsets;
  const LaneColumns<kVectors> columns(static_cast<int32_t>(item - b * chunks), lane, lanes, table.dim);
  if (!columns.any()) return;
  const Bag<Row, kVectors> bag{static_cast<const Row*>(table.weights),
                               table.row_stride,
                               a.batch.ids,
                               a.batch.weights,
                               index_at(offsets, feature.first_offset + b),
                               index_at(offsets, feature.first_offset + b + 1),
                               columns};
  Out* output = static_cast<Out*>(a.output) + feature.output_offset;
  const bool vectors = feature.aligned != 0;
  if (feature.pooling == TSR_POOLING_NONE) {
    const int64_t first = index_at(offsets, feature.first_offset);
    bag.visit([&](int64_t p, const float(&row)[kLaneColumns]) {
      columns.store(output + (p - first) * feature.output_stride, vectors, row);
    });
    return;
  }
  float sum[kLaneColumns] = {};
  bag.visit([&](int64_t, const float(&row)[kLaneColumns]) {
    GPU_UNROLL
    for (int32_t c = 0; c < kLaneColumns; ++c) sum[c] += row[c];
  });
  if (feature.pooling == TSR_POOLING_MEAN && bag.end > bag.begin) {
    const float length = static_cast<float>(bag.end - bag.begin);
    GPU_UNROLL
    for (int32_t c = 0; c < kLaneColumns; ++c) sum[c] = divide(sum[c], length);
  }
  columns.store(output + b * feature.output_stride, vectors, sum);
}

template <class Row, class Out>
GPU_GLOBAL void forward_kernel(ForwardArgs a) {
  const FeatureView* features = a.batch.features;
  const int32_t f =
      last_at_or_below(a.batch.num_features, blockIdx.x, [&](int32_t i) { return features[i].first_block; });
  const FeatureView& feature = features[f];
  const int64_t block = static_cast<int64_t>(blockIdx.x) - feature.first_block;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (block == 0 && thread == 0) {
    const Indices& offsets = a.batch.offsets;
    const int64_t ids =
        index_at(offsets, feature.first_offset + feature.bags) - index_at(offsets, feature.first_offset);
    atomic_add(a.lookups + feature.table, static_cast<uint64_t>(ids));
  }
  const int32_t dim = a.batch.tables[feature.table].dim;
  const int32_t lanes = group_lanes(dim);
  const int32_t chunks = chunks_of(dim, lanes);
  const int64_t item = block * (kBlockThreads / lanes) + thread / lanes;
  if (item >= feature.bags * chunks) return;
  if (a.batch.tables[feature.table].aligned != 0) {
    look_up<Row, Out, true>(a, feature, item, thread % lanes, lanes, chunks);
  } else {
    look_up<Row, Out, false>(a, feature, item, thread % lanes, lanes, chunks);
  }
}

}  // namespace

int64_t forward_blocks(int64_t bags, int32_t dim) {
  const int32_t lanes = group_lanes(dim);
  const int64_t in_block = kBlockThreads / lanes;
  return (bags * chunks_of(dim, lanes) + in_block - 1) / in_block;
}

void launch_forward(const BatchView& batch, int64_t blocks, Storage rows, Storage out, void* output, uint64_t* lookups,
                    Stream stream) {
  if (blocks == 0) return;
  const ForwardArgs args{batch, output, lookups};
  with_storage(rows, [&](auto row) {
    with_storage(out, [&](auto value) {
      GPU_LAUNCH((forward_kernel<decltype(row), decltype(value)>), static_cast<uint32_t>(blocks), kBlockThreads, 0,
                 stream, args);
    });
  });
}

}  // namespace tessera::gpu
