#include "gpu/sort.h"

#include "gpu/block.h"

namespace tessera::gpu {
namespace {

constexpr int32_t kItems = static_cast<int32_t>(kSortTile) / kBlockThreads;
static_assert(kBlockThreads == kDigits, "a thread is also a digit");

template <class Key>
struct PassArgs {
  const uint32_t* count;
  const Key* keys;
  const uint32_t* indices;  // NULL means 0, 1, 2, ...
  Key* sorted_keys;
  uint32_t* sorted_indices;
  const uint32_t* histogram;
  uint32_t* states;
  uint32_t* ticket;
  int32_t shift;
};

template <class Key>
GPU_DEVICE uint32_t digit_of(Key key, int32_t shift) {
  return static_cast<uint32_t>(key >> shift) & (kDigits - 1);
}

// The lanes of the warp with the same digit.
GPU_DEVICE uint64_t same_digit(uint32_t digit) {
  uint64_t same = ~uint64_t{0};
  GPU_UNROLL
  for (int32_t bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const uint64_t lanes = ballot(set);
    same &= set ? lanes : ~lanes;
  }
  return warp_size() == 64 ? same : same & 0xffffffffu;
}

// Counts the warp's items by digit. Numbers each item among the warp's items with the same digit, in order of item,
// then lane.
template <class Key>
GPU_DEVICE void number_items(const Key (&key)[kItems], int32_t shift, uint32_t* counts, uint32_t (&number)[kItems]) {
  const uint64_t in_front = (uint64_t{1} << lane()) - 1;
  GPU_UNROLL
  for (int32_t i = 0; i < kItems; ++i) {
    const uint64_t same = same_digit(digit_of(key[i], shift));
    const uint32_t before = static_cast<uint32_t>(popcount(same & in_front));
    uint32_t* count = counts + digit_of(key[i], shift);
    number[i] = *count + before;
    sync_warp();
    if (before == 0) *count += static_cast<uint32_t>(popcount(same));
    sync_warp();
  }
}

// Sorts one tile by one digit. The order within the tile is made in shared memory, so that equal digits are written
// together.
template <class Key>
GPU_GLOBAL void GPU_LAUNCH_BOUNDS(kBlockThreads) sort_pass_kernel(PassArgs<Key> a) {
  GPU_SHARED(uint32_t, tile_shared, 1);
  GPU_SHARED(uint32_t, counts, (kBlockThreads / 32) * kDigits);  // by warp and digit
  GPU_SHARED(uint32_t, scan, kBlockThreads / 32);
  GPU_SHARED(uint32_t, scan_all, kBlockThreads / 32);
  GPU_SHARED(uint32_t, first, kDigits);   // first position of a digit in the tile
  GPU_SHARED(uint32_t, target, kDigits);  // target of a digit's items, minus their position in the tile
  GPU_SHARED(Key, tile_keys, kSortTile);
  GPU_SHARED(uint32_t, tile_indices, kSortTile);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) tile_shared[0] = atomic_add(a.ticket, 1u);
  const int32_t warps = kBlockThreads / warp_size();
  for (int32_t w = 0; w < warps; ++w) counts[w * kDigits + thread] = 0;
  sync_block();
  const int64_t tile = tile_shared[0];
  const int64_t begin = tile * kSortTile;
  const int64_t count = *a.count;
  if (begin >= count) return;

  Key key[kItems];
  uint32_t index[kItems];
  const int64_t from = begin + warp() * kItems * warp_size() + lane();
  GPU_UNROLL
  for (int32_t i = 0; i < kItems; ++i) {
    const int64_t at = from + i * warp_size();
    key[i] = at < count ? a.keys[at] : ~Key{0};  // beyond the end, a key that sorts last
    index[i] = a.indices == nullptr ? static_cast<uint32_t>(at) : at < count ? a.indices[at] : 0;
  }
  uint32_t number[kItems];
  number_items(key, a.shift, counts + warp() * kDigits, number);
  sync_block();

  uint32_t mine = 0;  // number of items of this thread's digit in the tile
  for (int32_t w = 0; w < warps; ++w) {
    const uint32_t c = counts[w * kDigits + thread];
    counts[w * kDigits + thread] = mine;
    mine += c;
  }
  const uint32_t in_tile = block_exclusive_sum<uint32_t>(mine, scan, nullptr);
  const uint32_t in_all = block_exclusive_sum<uint32_t>(a.histogram[thread], scan_all, nullptr);
  first[thread] = in_tile;
  target[thread] = in_all + sum_of_blocks_in_front<Word32>(a.states + thread, kDigits, tile, mine) - in_tile;
  sync_block();

  GPU_UNROLL
  for (int32_t i = 0; i < kItems; ++i) {
    const uint32_t digit = digit_of(key[i], a.shift);
    const uint32_t place = first[digit] + counts[warp() * kDigits + digit] + number[i];
    tile_keys[place] = key[i];
    tile_indices[place] = index[i];
  }
  sync_block();
  const int64_t here = count - begin < kSortTile ? count - begin : kSortTile;
  for (int64_t i = thread; i < here; i += kBlockThreads) {
    const uint32_t to = target[digit_of(tile_keys[i], a.shift)] + static_cast<uint32_t>(i);
    a.sorted_keys[to] = tile_keys[i];
    a.sorted_indices[to] = tile_indices[i];
  }
}

}  // namespace

template <class Key>
int32_t launch_sort(const SortArgs<Key>& args, Stream stream) {
  const int64_t tiles = sort_tiles(args.capacity);
  if (tiles == 0) return 0;
  for (int32_t pass = 0; pass < args.passes; ++pass) {
    const int32_t from = pass % 2;
    const PassArgs<Key> a{args.count,
                          args.keys[from],
                          pass == 0 ? nullptr : args.indices[from],
                          args.keys[1 - from],
                          args.indices[1 - from],
                          args.histogram + pass * kDigits,
                          args.states + pass * tiles * kDigits,
                          args.tickets + pass,
                          pass * kDigitBits};
    GPU_LAUNCH(sort_pass_kernel<Key>, static_cast<uint32_t>(tiles), kBlockThreads, 0, stream, a);
  }
  return args.passes % 2;
}

template int32_t launch_sort<uint32_t>(const SortArgs<uint32_t>&, Stream);
template int32_t launch_sort<uint64_t>(const SortArgs<uint64_t>&, Stream);

}  // namespace tessera::gpu
