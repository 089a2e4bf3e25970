// gpu/block.h - device code: sums over the threads of a block, and communication between concurrent blocks.
#pragma once

#include "gpu/columns.h"

namespace tessera::gpu {

// Returns the sum of the values of all earlier threads in a block of kBlockThreads, and sets *total to the sum of all.
// All threads call it. `scratch` is kBlockThreads of shared memory, free again after the next barrier of all threads.
template <class T>
GPU_DEVICE T block_exclusive_sum(T value, T* scratch, T* total) {
  T sum = value;
  for (int d = 1; d < warp_size(); d *= 2) {
    const T other = shfl_up(sum, d);
    if (lane() >= d) sum += other;
  }
  if (lane() == warp_size() - 1) scratch[warp()] = sum;
  sync_block();
  T before = 0;
  T all = 0;
  for (int w = 0; w < kBlockThreads / warp_size(); ++w) {
    if (w == warp()) before = all;
    all += scratch[w];
  }
  if (total != nullptr) *total = all;
  return before + sum - value;
}

// ---- sums over the earlier blocks, in one launch ----
// Each block takes a ticket, so that the earlier blocks have begun before it. It publishes its own sum, adds the sums
// of earlier blocks, and publishes the result. Sum and state are one word, so no other memory has to be ordered with
// it.

constexpr uint32_t kOwnSum = 1;
constexpr uint32_t kSumUpToHere = 2;

// A word with 30 bits of sum.
struct Word32 {
  using Bits = uint32_t;
  static constexpr int kShift = 30;
};
// A word with 62 bits of sum.
struct Word64 {
  using Bits = uint64_t;
  static constexpr int kShift = 62;
};

// `words` are 0 before the launch; the word of block b is words[b * stride]. One thread per sum calls this.
template <class Word>
GPU_DEVICE typename Word::Bits sum_of_blocks_in_front(typename Word::Bits* words, int64_t stride, int64_t block,
                                                      typename Word::Bits own) {
  using Bits = typename Word::Bits;
  constexpr Bits kOwn = Bits{kOwnSum} << Word::kShift;
  constexpr Bits kDone = Bits{kSumUpToHere} << Word::kShift;
  constexpr Bits kSum = (Bits{1} << Word::kShift) - 1;
  if (block == 0) {
    atomic_store(words, kDone | own);
    return 0;
  }
  atomic_store(words + block * stride, kOwn | own);
  Bits before = 0;
  for (int64_t b = block - 1;;) {
    const Bits word = atomic_load(words + b * stride);
    if (word == 0) continue;  // not published yet
    before += word & kSum;
    if ((word & kDone) != 0) break;
    --b;
  }
  atomic_store(words + block * stride, kDone | (before + own));
  return before;
}

}  // namespace tessera::gpu
