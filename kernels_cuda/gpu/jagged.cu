#include "gpu/jagged.h"

#include <algorithm>

#include "gpu/block.h"

namespace tessera::gpu {
namespace {

constexpr int32_t kItems = 8;  // lengths per thread
constexpr int64_t kTile = kItems * kBlockThreads;
constexpr int64_t kMostBlocks = 4096;
constexpr int32_t kBagLanes = 8;  // lanes that copy a bag

GPU_HOST_DEVICE int64_t bags_of(const JaggedView& view) { return view.features * view.batch; }

uint32_t grid_for(int64_t threads) {
  return static_cast<uint32_t>(std::clamp<int64_t>((threads + kBlockThreads - 1) / kBlockThreads, 1, kMostBlocks));
}
GPU_DEVICE int64_t first_thread() { return static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; }
GPU_DEVICE int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * kBlockThreads; }

GPU_DEVICE void put_index(void* indices, bool wide, int64_t i, int64_t value) {
  if (wide) {
    static_cast<int64_t*>(indices)[i] = value;
  } else {
    static_cast<int32_t*>(indices)[i] = static_cast<int32_t>(value);
  }
}
GPU_DEVICE void put_index(const IndicesOut& to, int64_t i, int64_t value) { put_index(to.data, to.wide, i, value); }
GPU_DEVICE int64_t index_at(const IndicesOut& from, int64_t i) { return index_at(Indices{from.data, from.wide}, i); }
// Finds the feature of a bag. 64-bit divisions are slow on a GPU.
GPU_DEVICE int32_t feature_of(const JaggedView& view, int64_t bag) {
  return last_at_or_below(view.features, bag, [&](int32_t f) { return f * view.batch; });
}

struct BoundsArgs {
  JaggedView input;
  const int64_t* rows;
  void* repaired;
  BoundsReport* report;
};

// Uses kBagLanes lanes per bag.
GPU_GLOBAL void bounds_kernel(BoundsArgs a) {
  const int64_t n = a.input.num_ids;
  for (int64_t i = first_thread(); i < bags_of(a.input) * kBagLanes; i += all_threads()) {
    const int64_t bag = i / kBagLanes;
    const int32_t lane = static_cast<int32_t>(i % kBagLanes);
    int64_t begin = index_at(a.input.offsets, bag);
    int64_t end = index_at(a.input.offsets, bag + 1);
    const bool ends_early = bag + 1 == bags_of(a.input) && end != n;
    const uint32_t bad_offsets = begin < 0 || begin > end || end > n || ends_early ? 1 : 0;
    if (bad_offsets != 0) {
      begin = begin < 0 ? 0 : begin > n ? n : begin;
      end = end < begin ? begin : end > n ? n : end;
    }
    uint32_t bad_ids = 0;
    const int64_t rows = a.rows[feature_of(a.input, bag)];
    for (int64_t p = begin + lane; p < end; p += kBagLanes) {
      const int64_t id = index_at(a.input.ids, p);
      const bool bad = id < 0 || id >= rows;
      bad_ids += bad ? 1 : 0;
      if (a.repaired != nullptr) put_index(a.repaired, a.input.ids.wide, p, bad ? 0 : id);
    }
    if (bad_ids != 0) atomic_add(&a.report->bad_ids, bad_ids);
    if (bad_offsets != 0 && lane == 0) atomic_add(&a.report->bad_offsets, 1u);
    if (bad_ids + bad_offsets != 0) atomic_max(&a.report->first_bag, UINT32_MAX - static_cast<uint32_t>(bag));
  }
}

struct ScanArgs {
  Indices lengths;
  int64_t count;
  IndicesOut offsets;
  uint64_t* words;
  uint32_t* ticket;
};

GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) offsets_kernel(ScanArgs a) {
  GPU_SHARED(uint32_t, tile_shared, 1);
  GPU_SHARED(uint64_t, scan, kBlockThreads / 32);
  GPU_SHARED(uint64_t, in_front, 1);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) tile_shared[0] = atomic_add(a.ticket, 1u);
  sync_block();
  const int64_t tile = tile_shared[0];
  const int64_t from = tile * kTile + thread * kItems;
  uint64_t mine = 0;
  for (int32_t i = 0; i < kItems; ++i) {
    if (from + i < a.count) mine += static_cast<uint64_t>(index_at(a.lengths, from + i));
  }
  uint64_t all = 0;
  const uint64_t in_tile = block_exclusive_sum(mine, scan, &all);
  if (thread == 0) in_front[0] = sum_of_blocks_in_front<Word64>(a.words, 1, tile, all);
  sync_block();
  uint64_t sum = in_front[0] + in_tile;
  for (int32_t i = 0; i < kItems && from + i < a.count; ++i) {
    put_index(a.offsets, from + i, static_cast<int64_t>(sum));
    sum += static_cast<uint64_t>(index_at(a.lengths, from + i));
    if (from + i + 1 == a.count) put_index(a.offsets, a.count, static_cast<int64_t>(sum));
  }
}

struct BucketizeArgs {
  JaggedView input;
  int32_t ranks;
  const int64_t* blocks;
  Bucketized output;
};

GPU_DEVICE int32_t owner_of(const BucketizeArgs& a, int64_t id, int64_t block) {
  return last_at_or_below(a.ranks, id, [&](int32_t r) { return r * block; });
}

// One thread per bag handles its ids in order, so that they keep their order on each rank. The first launch counts the
// ids. When offsets are known and counts are 0 again, the second launch counts again and places the ids.
template <bool kPlace>
GPU_GLOBAL void bucketize_kernel(BucketizeArgs a) {
  const int64_t bags = bags_of(a.input);
  const Bucketized& out = a.output;
  for (int64_t bag = first_thread(); bag < bags; bag += all_threads()) {
    const int64_t block = a.blocks[feature_of(a.input, bag)];
    const int64_t end = index_at(a.input.offsets, bag + 1);
    for (int64_t p = index_at(a.input.offsets, bag); p < end; ++p) {
      const int64_t id = index_at(a.input.ids, p);
      const int32_t rank = owner_of(a, id, block);
      const int64_t before = index_at(out.lengths, rank * bags + bag);
      put_index(out.lengths, rank * bags + bag, before + 1);
      if constexpr (kPlace) {
        const int64_t to = index_at(out.offsets, rank * bags + bag) + before;
        put_index(out.ids, a.input.ids.wide, to, id - rank * block);
        if (out.weights != nullptr) out.weights[to] = a.input.weights[p];
        if (out.positions != nullptr) out.positions[p] = to;
      }
    }
  }
}

struct PermuteArgs {
  JaggedView input;
  int32_t outputs;
  const int32_t* permute;
  Permuted output;
};

GPU_DEVICE int64_t source_bag(const PermuteArgs& a, int64_t bag) {
  const int32_t f = last_at_or_below(a.outputs, bag, [&](int32_t i) { return i * a.input.batch; });
  return a.permute[f] * a.input.batch + (bag - f * a.input.batch);
}

GPU_GLOBAL void permute_lengths_kernel(PermuteArgs a) {
  for (int64_t bag = first_thread(); bag < a.outputs * a.input.batch; bag += all_threads()) {
    const int64_t from = source_bag(a, bag);
    put_index(a.output.lengths, bag, index_at(a.input.offsets, from + 1) - index_at(a.input.offsets, from));
  }
}

// Uses kBagLanes lanes per bag.
GPU_GLOBAL void permute_ids_kernel(PermuteArgs a) {
  for (int64_t i = first_thread(); i < a.outputs * a.input.batch * kBagLanes; i += all_threads()) {
    const int64_t bag = i / kBagLanes;
    const int64_t from = index_at(a.input.offsets, source_bag(a, bag));
    const int64_t to = index_at(a.output.offsets, bag);
    const int64_t length = index_at(a.output.lengths, bag);
    for (int64_t k = i % kBagLanes; k < length; k += kBagLanes) {
      put_index(a.output.ids, a.input.ids.wide, to + k, index_at(a.input.ids, from + k));
      if (a.output.weights != nullptr) a.output.weights[to + k] = a.input.weights[from + k];
    }
  }
}

size_t bytes_of(const IndicesOut& indices, int64_t count) {
  return static_cast<size_t>(count) * (indices.wide ? sizeof(int64_t) : sizeof(int32_t));
}

int64_t tiles_of(int64_t lengths) { return std::max<int64_t>(1, (lengths + kTile - 1) / kTile); }

}  // namespace

void launch_check_bounds(const JaggedView& input, const int64_t* rows, void* repaired, BoundsReport* report,
                         Stream stream) {
  memset_async(report, 0, sizeof(BoundsReport), stream);
  if (bags_of(input) == 0) return;
  GPU_LAUNCH(bounds_kernel, grid_for(bags_of(input) * kBagLanes), kBlockThreads, 0, stream,
             BoundsArgs{input, rows, repaired, report});
}

size_t scan_scratch_bytes(int64_t lengths) { return static_cast<size_t>(tiles_of(lengths) + 1) * sizeof(uint64_t); }

void launch_offsets(const Indices& lengths, int64_t count, const IndicesOut& offsets, void* scratch, Stream stream) {
  if (count == 0) return memset_async(offsets.data, 0, bytes_of(offsets, 1), stream);
  memset_async(scratch, 0, scan_scratch_bytes(count), stream);
  uint64_t* words = static_cast<uint64_t*>(scratch);
  const int64_t tiles = tiles_of(count);
  GPU_LAUNCH(offsets_kernel, static_cast<uint32_t>(tiles), kBlockThreads, 0, stream,
             ScanArgs{lengths, count, offsets, words, reinterpret_cast<uint32_t*>(words + tiles)});
}

void launch_bucketize(const JaggedView& input, int32_t ranks, const int64_t* blocks, const Bucketized& output,
                      void* scratch, Stream stream) {
  const int64_t bags = bags_of(input);
  const int64_t lengths = ranks * bags;
  if (bags == 0) return launch_offsets(read(output.lengths), 0, output.offsets, scratch, stream);
  const BucketizeArgs args{input, ranks, blocks, output};
  memset_async(output.lengths.data, 0, bytes_of(output.lengths, lengths), stream);
  GPU_LAUNCH(bucketize_kernel<false>, grid_for(bags), kBlockThreads, 0, stream, args);
  launch_offsets(read(output.lengths), lengths, output.offsets, scratch, stream);
  memset_async(output.lengths.data, 0, bytes_of(output.lengths, lengths), stream);
  GPU_LAUNCH(bucketize_kernel<true>, grid_for(bags), kBlockThreads, 0, stream, args);
}

void launch_permute(const JaggedView& input, int32_t outputs, const int32_t* permute, const Permuted& output,
                    void* scratch, Stream stream) {
  const int64_t bags = outputs * input.batch;
  if (bags == 0) return launch_offsets(read(output.lengths), 0, output.offsets, scratch, stream);
  const PermuteArgs args{input, outputs, permute, output};
  GPU_LAUNCH(permute_lengths_kernel, grid_for(bags), kBlockThreads, 0, stream, args);
  launch_offsets(read(output.lengths), bags, output.offsets, scratch, stream);
  GPU_LAUNCH(permute_ids_kernel, grid_for(bags * kBagLanes), kBlockThreads, 0, stream, args);
}

}  // namespace tessera::gpu
