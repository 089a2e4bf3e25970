// gpu/sort.h - a stable radix sort on the device, with one launch for each 8 bits of the keys.
#pragma once

#include "gpu/gpu.h"

namespace tessera::gpu {

constexpr int32_t kDigitBits = 8;
constexpr int32_t kDigits = 1 << kDigitBits;
constexpr int32_t kMostPasses = 8;
constexpr int64_t kSortTile = 2048;  // pairs per block
constexpr int64_t kMostSorted = (int64_t{1} << 30) - 1;

inline int32_t sort_passes(int32_t key_bits) {
  return key_bits <= kDigitBits ? 1 : (key_bits + kDigitBits - 1) / kDigitBits;
}
inline int64_t sort_tiles(int64_t capacity) { return (capacity + kSortTile - 1) / kSortTile; }

// Pairs of a key and its original index. The number of pairs is in device memory and at most `capacity`. The code that
// makes the keys must also count digits in histogram[pass * kDigits + digit], and set states and tickets to 0.
template <class Key>
struct SortArgs {
  int64_t capacity;
  const uint32_t* count;
  Key* keys[2];          // keys[0]: the input
  uint32_t* indices[2];  // indices[0] need not be filled
  const uint32_t* histogram;
  uint32_t* states;   // passes * tiles * kDigits
  uint32_t* tickets;  // passes
  int32_t passes;
};

// Returns which of the two arrays has the result, sorted by key, then by index. The other one is free.
template <class Key>
int32_t launch_sort(const SortArgs<Key>& args, Stream stream);

extern template int32_t launch_sort<uint32_t>(const SortArgs<uint32_t>&, Stream);
extern template int32_t launch_sort<uint64_t>(const SortArgs<uint64_t>&, Stream);

}  // namespace tessera::gpu
