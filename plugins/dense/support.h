// Shared by the dense layers: memory, and work for the host's threads.
#pragma once

#include <algorithm>
#include <atomic>

#include "tessera/sdk/layers.h"

namespace tessera_dense {

// A buffer of floats in the host's memory, which never shrinks. It grows by more than is needed, because batches of
// sequences vary.
class Floats {
 public:
  float* at_least(tessera::sdk::Host host, int64_t count) {
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float), before = buffer_.bytes();
    if (before < bytes) buffer_ = tessera::sdk::Buffer(host, before > 0 ? bytes + bytes / 4 / 64 * 64 : bytes);
    return data();
  }
  float* data() const { return buffer_.data<float>(); }

 private:
  tessera::sdk::Buffer buffer_;
};

using tessera::sdk::batch_of;
using tessera::sdk::ContextPool;
using tessera::sdk::matrix;
using tessera::sdk::matrix_or_null;
using tessera::sdk::parameter_data;

// Work of this many multiply-adds takes longer than waking a thread for it.
constexpr int64_t kProductsWorthAThread = 1 << 20;

// Calls body(i) for i in [0, n). If `worth`, the host's threads do: a free thread takes the next i, so that a thread
// whose core is busy does not delay the others.
template <class Body>
void one_by_one(tessera::sdk::Host host, int64_t n, bool worth, Body&& body) {
  if (worth && n > 1) {
    host.parallel_for(static_cast<uint64_t>(n), [&](uint64_t i) { body(static_cast<int64_t>(i)); });
  } else {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
}

// Calls body(begin, end, slot) for each block of `size` in [0, n). Slots count from 0 to slots_of() - 1; no two
// concurrent calls have the same slot. A slot begins with its own part of the blocks, which is the same in every loop
// over a batch, so that its thread still has the rows in its caches.
inline int64_t slots_of(tessera::sdk::Host host, int64_t n, int64_t size) {
  return std::min<int64_t>(host.num_threads(), (n + size - 1) / size);
}
template <class Body>
void in_blocks(tessera::sdk::Host host, int64_t n, int64_t size, Body&& body) {
  constexpr int64_t kMostParts = 32;
  struct alignas(64) Part {
    std::atomic<int64_t> next;  // the next block
    int64_t end;
  } parts[kMostParts];
  const int64_t slots = slots_of(host, n, size), count = std::clamp<int64_t>(slots, 1, kMostParts);
  for (int64_t p = 0, blocks = (n + size - 1) / size; p < count; ++p) {
    parts[p].next = blocks * p / count;
    parts[p].end = blocks * (p + 1) / count;
  }
  one_by_one(host, slots, true, [&](int64_t slot) {
    for (int64_t p = 0; p < count; ++p) {
      Part& part = parts[(slot + p) % count];
      for (int64_t block; (block = part.next.fetch_add(1, std::memory_order_relaxed)) < part.end;)
        body(block * size, std::min(n, (block + 1) * size), slot);
    }
  });
}

// A loop over this many values takes longer than waking a thread for it. They fit into a core's caches.
constexpr int64_t kValuesWorthAThread = 16 << 10;
// The number of rows of `width` that have about kValuesWorthAThread values.
inline int64_t rows_of_block(int64_t width) {
  return std::max<int64_t>(kValuesWorthAThread / std::max<int64_t>(width, 1), 1);
}
// Calls body(begin, end) for blocks of rows, on the host's threads.
template <class Body>
void in_row_blocks(tessera::sdk::Host host, int64_t rows, int64_t width, Body&& body) {
  in_blocks(host, rows, rows_of_block(width), [&](int64_t begin, int64_t end, int64_t) { body(begin, end); });
}

}  // namespace tessera_dense
