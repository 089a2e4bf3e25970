#include "gpu/gradient.h"

#include <algorithm>
#include <bit>

#include "gpu/block.h"
#include "gpu/sort.h"
#include "tessera/abi/sharder.h"

namespace tessera::gpu {
namespace {

constexpr int32_t kBagLanes = 8;  // lanes that share a bag's ids
constexpr int32_t kKeyBlocks = 1024;
constexpr int32_t kSegmentItems = static_cast<int32_t>(kSortTile) / kBlockThreads;

struct PrepareArgs {
  BatchView batch;
  GradientWork work;
};

// Writes zeros, and the index where the entries of each feature begin.
GPU_GLOBAL void prepare_kernel(PrepareArgs a) {
  uint32_t* zeroed = static_cast<uint32_t*>(a.work.zeroed);
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < a.work.zeroed_words;
       i += threads) {
    zeroed[i] = 0;
  }
  if (blockIdx.x != 0) return;
  GPU_SHARED(int64_t, scan, kBlockThreads / 32);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  int64_t entries = 0;
  for (int32_t from = 0; from < a.batch.num_features; from += kBlockThreads) {
    const int32_t f = from + thread;
    int64_t ids = 0;
    if (f < a.batch.num_features && a.batch.features[f].bags > 0) {
      const FeatureView& feature = a.batch.features[f];
      ids = index_at(a.batch.offsets, feature.first_offset + feature.bags) -
            index_at(a.batch.offsets, feature.first_offset);
    }
    int64_t all = 0;
    const int64_t before = block_exclusive_sum(ids, scan, &all);
    if (f < a.batch.num_features) a.work.first_entry[f] = entries + before;
    entries += all;
    sync_block();
  }
  if (thread == 0) *a.work.entries_count = static_cast<uint32_t>(entries);
}

struct KeyArgs {
  BatchView batch;
  GradientWork work;
  int32_t passes;
};

// Makes the entries of one bag, by kBagLanes lanes.
template <class Key>
GPU_DEVICE void write_bag(const KeyArgs& a, int64_t bag, int32_t lane, uint32_t* histogram) {
  const FeatureView* features = a.batch.features;
  const int32_t f = last_at_or_below(a.batch.num_features, bag, [&](int32_t i) { return features[i].first_bag; });
  const FeatureView& feature = features[f];
  const Indices& offsets = a.batch.offsets;
  const int64_t b = bag - feature.first_bag;
  const int64_t first = index_at(offsets, feature.first_offset);
  const int64_t begin = index_at(offsets, feature.first_offset + b);
  const int64_t end = index_at(offsets, feature.first_offset + b + 1);
  const int64_t first_key = a.batch.tables[feature.table].first_key;
  const float divisor = feature.pooling == TSR_POOLING_MEAN ? static_cast<float>(end - begin) : 1.0f;
  for (int64_t p = begin + lane; p < end; p += kBagLanes) {
    const int64_t e = a.work.first_entry[f] + p - first;
    const int64_t slot = feature.pooling == TSR_POOLING_NONE ? p - first : b;
    const float weight = a.batch.weights == nullptr ? 1.0f : a.batch.weights[p];
    a.work.entries[e] = {feature.output_offset + slot * feature.output_stride, divide(weight, divisor), 0};
    const Key key = static_cast<Key>(first_key + index_at(a.batch.ids, p));
    static_cast<Key*>(a.work.keys[0])[e] = key;
    for (int32_t pass = 0; pass < a.passes; ++pass) {
      const uint32_t digit = static_cast<uint32_t>(key >> (pass * kDigitBits)) & (kDigits - 1);
      atomic_add(histogram + pass * kDigits + digit, 1u);
    }
  }
}

template <class Key>
GPU_GLOBAL void keys_kernel(KeyArgs a) {
  GPU_SHARED(uint32_t, histogram, kMostPasses * kDigits);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < a.passes * kDigits; i += kBlockThreads) histogram[i] = 0;
  sync_block();
  constexpr int64_t kBags = kBlockThreads / kBagLanes;
  for (int64_t bag = blockIdx.x * kBags + thread / kBagLanes; bag < a.batch.bags; bag += gridDim.x * kBags) {
    write_bag<Key>(a, bag, thread % kBagLanes, histogram);
  }
  sync_block();
  for (int32_t i = thread; i < a.passes * kDigits; i += kBlockThreads) {
    if (histogram[i] != 0) atomic_add(a.work.histogram + i, histogram[i]);
  }
}

struct SegmentArgs {
  GradientWork work;
  uint32_t* ticket;
};

// A tile's units and the heads of its runs are counted together: units in the upper half of a word, heads in the lower.
constexpr int32_t kUnitShift = 31;
constexpr uint64_t kHeads = (uint64_t{1} << kUnitShift) - 1;

template <class Key>
GPU_GLOBAL void segments_kernel(SegmentArgs a) {
  GPU_SHARED(uint32_t, tile_shared, 1);
  GPU_SHARED(uint64_t, scan, kBlockThreads / 32);
  GPU_SHARED(uint64_t, tiles_in_front, 1);
  const GradientWork& work = a.work;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) tile_shared[0] = atomic_add(a.ticket, 1u);
  sync_block();
  const int64_t tile = tile_shared[0];
  const int64_t begin = tile * kSortTile;
  const int64_t count = *work.entries_count;
  if (begin >= count) return;

  const Key* keys = static_cast<const Key*>(work.keys[work.sorted]);
  const int64_t from = begin + warp() * kSegmentItems * warp_size();
  uint64_t units[kSegmentItems];  // a bit per lane: a unit begins there
  uint64_t heads[kSegmentItems];
  uint64_t in_warp = 0;
  const int64_t half_unit = int64_t{1} << (work.unit_shift - 1);
  GPU_UNROLL
  for (int32_t i = 0; i < kSegmentItems; ++i) {
    const int64_t at = from + i * warp_size() + lane();
    const bool head = at < count && (at == 0 || keys[at] != keys[at - 1]);
    const bool unit =
        head || (at < count && (at & (half_unit * 2 - 1)) == 0 &&
                 (keys[at - half_unit] == keys[at] || (at + half_unit < count && keys[at + half_unit] == keys[at])));
    units[i] = ballot(unit);
    heads[i] = ballot(head);
    in_warp += (static_cast<uint64_t>(popcount(units[i])) << kUnitShift) + static_cast<uint64_t>(popcount(heads[i]));
  }
  uint64_t in_tile = 0;
  const uint64_t warps_in_front = shfl(block_exclusive_sum(lane() == 0 ? in_warp : 0, scan, &in_tile), 0);
  if (thread == 0) tiles_in_front[0] = sum_of_blocks_in_front<Word64>(work.segment_words, 1, tile, in_tile);
  sync_block();
  uint64_t before = tiles_in_front[0] + warps_in_front;
  const uint64_t in_front = (uint64_t{1} << lane()) - 1;
  GPU_UNROLL
  for (int32_t i = 0; i < kSegmentItems; ++i) {
    const int64_t at = from + i * warp_size() + lane();
    if ((units[i] >> lane() & 1) != 0) {
      const uint64_t unit = (before >> kUnitShift) + static_cast<uint64_t>(popcount(units[i] & in_front));
      const bool head = (heads[i] >> lane() & 1) != 0;
      const uint64_t run =
          (before & kHeads) + static_cast<uint64_t>(popcount(heads[i] & in_front)) + (head ? 1 : 0) - 1;
      work.unit_start[unit] = static_cast<uint32_t>(at);
      work.unit_run[unit] = static_cast<uint32_t>(run);
      if (head && work.run_keys != nullptr) work.run_keys[run] = static_cast<int64_t>(keys[at]);
    }
    before += (static_cast<uint64_t>(popcount(units[i])) << kUnitShift) + static_cast<uint64_t>(popcount(heads[i]));
  }
  if (thread == 0 && begin + kSortTile >= count) {
    const uint64_t all = tiles_in_front[0] + in_tile;
    *work.units_count = static_cast<uint32_t>(all >> kUnitShift);
    *work.runs_count = static_cast<uint32_t>(all & kHeads);
    work.unit_start[all >> kUnitShift] = static_cast<uint32_t>(count);
  }
}

struct TableRunsArgs {
  BatchView batch;
  GradientWork work;
  uint32_t* starts;
};

GPU_GLOBAL void table_runs_kernel(TableRunsArgs a) {
  const int32_t t = static_cast<int32_t>(blockIdx.x * kBlockThreads + threadIdx.x);
  if (t > a.batch.num_tables) return;
  const uint32_t runs = *a.work.runs_count;
  uint32_t low = t == a.batch.num_tables ? runs : 0;
  uint32_t high = runs;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (a.work.run_keys[middle] < a.batch.tables[t].first_key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  a.starts[t] = low;
}

// Hands out consecutive pieces of memory; only counts if there is no memory yet.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at_);
    at_ += (static_cast<uint64_t>(count) * sizeof(T) + 255) / 256 * 256;
    return piece;
  }
  uint64_t at() const { return at_; }

 private:
  char* base_;
  uint64_t at_ = 0;
};

GradientWork carve(const GradientSizes& s, Carver& carver) {
  GradientWork w{};
  const int64_t passes = sort_passes(s.key_bits());
  const int64_t tiles = sort_tiles(s.entries);
  const int64_t units = s.entries + s.blocks() + 1;
  w.entries_count = carver.take<uint32_t>(1);
  const uint64_t zeroed_from = carver.at();
  w.units_count = carver.take<uint32_t>(1);
  w.zeroed = w.units_count;
  w.runs_count = carver.take<uint32_t>(1);
  w.long_count = carver.take<uint32_t>(1);
  w.tickets = carver.take<uint32_t>(passes + 1);
  w.histogram = carver.take<uint32_t>(passes * kDigits);
  w.sort_states = carver.take<uint32_t>(passes * tiles * kDigits);
  w.segment_words = carver.take<uint64_t>(tiles);
  w.zeroed_words = static_cast<int64_t>(carver.at() - zeroed_from) / 4;
  w.first_entry = carver.take<int64_t>(s.features);
  w.entries = carver.take<Entry>(s.entries);
  for (void*& keys : w.keys) keys = carver.take<char>(s.entries * (s.wide_keys() ? 8 : 4));
  for (uint32_t*& indices : w.indices) indices = carver.take<uint32_t>(s.entries);
  w.unit_start = carver.take<uint32_t>(units + 1);
  w.unit_run = carver.take<uint32_t>(units);
  w.long_starts = carver.take<uint32_t>(s.blocks());
  if (s.wants_runs) w.run_keys = carver.take<int64_t>(s.entries);
  w.partial_stride = (s.max_dim + 3) / 4 * 4;
  w.partials = carver.take<float>(2 * s.blocks() * w.partial_stride);
  w.wide_keys = s.wide_keys();
  w.unit_shift = s.unit_shift();
  return w;
}

template <class Key>
void plan(const BatchView& batch, const GradientSizes& sizes, GradientWork& work, Stream stream) {
  const int32_t passes = sort_passes(sizes.key_bits());
  const int64_t zero_blocks = std::min<int64_t>(kKeyBlocks, work.zeroed_words / kBlockThreads + 1);
  GPU_LAUNCH(prepare_kernel, static_cast<uint32_t>(zero_blocks), kBlockThreads, 0, stream, PrepareArgs{batch, work});
  const int64_t key_blocks = std::min<int64_t>(kKeyBlocks, batch.bags * kBagLanes / kBlockThreads + 1);
  GPU_LAUNCH(keys_kernel<Key>, static_cast<uint32_t>(key_blocks), kBlockThreads, 0, stream,
             KeyArgs{batch, work, passes});
  const SortArgs<Key> sort{sizes.entries,
                           work.entries_count,
                           {static_cast<Key*>(work.keys[0]), static_cast<Key*>(work.keys[1])},
                           {work.indices[0], work.indices[1]},
                           work.histogram,
                           work.sort_states,
                           work.tickets,
                           passes};
  work.sorted = launch_sort(sort, stream);
  GPU_LAUNCH(segments_kernel<Key>, static_cast<uint32_t>(sort_tiles(sizes.entries)), kBlockThreads, 0, stream,
             SegmentArgs{work, work.tickets + passes});
}

}  // namespace

int32_t GradientSizes::key_bits() const {
  return static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(keys, 1) - 1)));
}

uint64_t gradient_bytes(const GradientSizes& sizes) {
  Carver carver(nullptr);
  carve(sizes, carver);
  return carver.at();
}

GradientWork gradient_work(const GradientSizes& sizes, void* base) {
  Carver carver(base);
  return carve(sizes, carver);
}

void launch_gradient_plan(const BatchView& batch, const GradientSizes& sizes, GradientWork& work, Stream stream) {
  if (sizes.wide_keys()) {
    plan<uint64_t>(batch, sizes, work, stream);
  } else {
    plan<uint32_t>(batch, sizes, work, stream);
  }
}

void launch_table_runs(const BatchView& batch, const GradientWork& work, uint32_t* starts, Stream stream) {
  const int64_t blocks = batch.num_tables / kBlockThreads + 1;
  GPU_LAUNCH(table_runs_kernel, static_cast<uint32_t>(blocks), kBlockThreads, 0, stream,
             TableRunsArgs{batch, work, starts});
}

}  // namespace tessera::gpu
