#include "kernel/context.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/forward.h"
#include "gpu/upload.h"

namespace tessera::gpu {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 24;  // a block has up to 256 groups, whose numbers have 32 bits

// The largest number of features whose bags overlap; times the ids, it bounds the entries of a batch.
int64_t most_overlapping(const std::vector<FeatureView>& features) {
  std::vector<std::pair<int64_t, int64_t>> ends;  // both ends of each feature's range of offsets: position, +1 or -1
  for (const FeatureView& f : features) {
    if (f.bags == 0) continue;
    ends.emplace_back(f.first_offset, 1);
    ends.emplace_back(f.first_offset + f.bags, -1);
  }
  std::sort(ends.begin(), ends.end());  // ends before beginnings
  int64_t now = 0;
  int64_t most = 1;
  for (const auto& [where, change] : ends) most = std::max(most, now += change);
  return most;
}

}  // namespace

void Context::describe(const tsr_lookup& lookup, const Config& config, const DLTensor& values, Stream stream) {
  constexpr int64_t kVector = 4;
  const bool base =
      reinterpret_cast<uintptr_t>(sdk::raw(values)) % static_cast<uintptr_t>(kVector * bytes_of(config.output)) == 0;
  wanted.clear();
  bags = 0;
  blocks = 0;
  bool all = true;
  for (size_t f = 0; f < lookup.num_features; ++f) {
    const tsr_lookup_feature& x = sdk::feature_of(lookup, f);
    const int64_t dim = config.tables[static_cast<size_t>(x.table)].dim;
    const bool vectors = x.output_offset % kVector == 0 && x.output_stride % kVector == 0 && dim % kVector == 0;
    wanted.push_back({x.bags, x.first_offset, x.output_offset, x.output_stride, bags, blocks, x.table, x.pooling,
                      vectors && base ? 1 : 0, 0});
    bags += x.bags;
    blocks += forward_blocks(x.bags, static_cast<int32_t>(dim));
    all = all && (vectors || x.bags == 0);
  }
  if (blocks > kMostBlocks) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "a lookup of ", bags, " bags needs ", blocks, " blocks, but at most ",
              kMostBlocks, " are launched at once: use smaller batches");
  }
  vectors = all;
  const size_t bytes = wanted.size() * sizeof(FeatureView);
  if (wanted.size() == sent.size() && std::memcmp(wanted.data(), sent.data(), bytes) == 0) return;
  id_runs = most_overlapping(wanted);
  upload(features.take(bytes, stream), wanted.data(), bytes, stream);
  std::swap(sent, wanted);
}

}  // namespace tessera::gpu
