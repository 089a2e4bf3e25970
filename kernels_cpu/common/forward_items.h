// Divides a forward call among threads.
#pragma once

#include <algorithm>
#include <vector>

#include "common/config.h"

namespace tessera_cpu {

// Bags [begin, end) of a feature.
struct ForwardItem {
  uint32_t feature;
  int64_t begin;
  int64_t end;
};

// Divides the features into items of similar cost, which is the bytes of rows that they read; row_bytes(table) are
// those of one row. Returns false, without items, if the batch reads less than `worth_threads` bytes, because waking
// threads would cost more.
template <class RowBytes>
bool cut_forward(const Batch& batch, int64_t threads, int64_t worth_threads, const RowBytes& row_bytes,
                 std::vector<ForwardItem>& items) {
  constexpr int64_t kItemsPerThread = 8;
  items.clear();
  if (threads <= 1) return false;
  const auto cost = [&](const tsr_lookup_feature& f) {
    return f.bags == 0 ? 0 : (batch.end(f) - batch.begin(f) + f.bags) * row_bytes(static_cast<size_t>(f.table));
  };
  int64_t total = 0;
  for (uint32_t f = 0; f < batch.num_features(); ++f) total += cost(batch.feature(f));
  if (total < worth_threads) return false;
  const int64_t item_bytes = std::max(total / (threads * kItemsPerThread), worth_threads / 4);
  for (uint32_t f = 0; f < batch.num_features(); ++f) {
    const int64_t bags = batch.feature(f).bags;
    if (bags == 0) continue;
    const int64_t pieces = std::clamp<int64_t>((cost(batch.feature(f)) + item_bytes - 1) / item_bytes, 1, bags);
    for (int64_t i = 0; i < pieces; ++i) items.push_back({f, bags * i / pieces, bags * (i + 1) / pieces});
  }
  return true;
}

}  // namespace tessera_cpu
